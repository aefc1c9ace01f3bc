// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"

	ours "github.com/seed81659283/nodeagent/probe"
	ourshttp "github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// crowd is the number of pods. Each has a readiness probe every ten seconds.
const crowd = 10_000

// warmUp is longer than the period over which the first probes are spread.
const warmUp = 12 * time.Second

// TestCrowdServer runs in the process of the server: it prints its port, and serves until its standard input is closed.
func TestCrowdServer(t *testing.T) {
	readArgument(t, nil)
	var asked, opened atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "ok")
	})
	mux.HandleFunc("/count", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode([]int64{asked.Load(), opened.Load()})
	})
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: mux, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}}
	go func() { _ = server.Serve(l) }()
	printJSON(l.Addr().(*net.TCPAddr).Port)
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = server.Close()
}

// TestCrowdProber runs in the process of one side, and prints its measurements.
func TestCrowdProber(t *testing.T) {
	var w watch
	readArgument(t, &w)
	debug.SetGCPercent(100) // the default, as in an agent
	var failed failures
	sides := map[string]func([]*corev1.Pod, *failures) func(context.Context){
		byKubelet: kubeletProber,
		byOurs:    ourProber(false),
		byFresh:   ourProber(true),
	}
	pods := newCrowd(w.Port)
	start := sides[w.Side](pods, &failed)
	heap, resident := memoryInUse(t), residentMemory(t)
	start(t.Context())

	time.Sleep(warmUp)
	asked, opened := countRequests(t, w.Port)
	cpu := cpuTime(t)
	time.Sleep(w.Window)
	s := measurement{CPU: cpuTime(t) - cpu}
	s.Asked, s.Opened = countRequests(t, w.Port)
	s.Asked, s.Opened = s.Asked-asked, s.Opened-opened
	s.Waiting, s.WaitingServer = timeWait(t, w.Port)
	s.Resident = (residentMemory(t) - resident) / crowd
	s.Heap = (minMemoryInUse(t) - heap) / crowd
	s.Goroutines = runtime.NumGoroutine()
	s.Failed, s.Failure = failed.all()
	printJSON(s)
	runtime.KeepAlive(pods)
}

// readArgument reads the argument of a child process, and skips the test in any other process.
func readArgument(t *testing.T, to any) {
	text, ok := os.LookupEnv(childEnv)
	if !ok {
		t.Skip("runs only in a child process")
	}
	if err := json.Unmarshal([]byte(text), &to); err != nil {
		t.Fatal(err)
	}
}

// printJSON writes a line for the parent process.
func printJSON(what any) { _ = json.NewEncoder(os.Stdout).Encode(what) }

// newCrowd returns running pods, which all have probes of one server.
func newCrowd(port int) []*corev1.Pod {
	pods := make([]*corev1.Pod, crowd)
	started := true
	for i := range pods {
		pods[i] = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("web-%05d", i),
				UID: types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", i)),
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", ReadinessProbe: &corev1.Probe{
				ProbeHandler:     get(port, "/ready"),
				TimeoutSeconds:   5, // a closed port fails at once; a busy machine responds within this time
				PeriodSeconds:    10,
				SuccessThreshold: 1,
				FailureThreshold: 3,
			}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: loopback, ContainerStatuses: []corev1.ContainerStatus{{
				Name: "web", ContainerID: fmt.Sprintf("containerd://%064d", i), Started: &started,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
			}}},
		}
	}
	return pods
}

// kubeletProber creates the kubelet's prober manager, and returns a function that starts it. Its metrics are not registered,
// so that they cost nothing. A goroutine only drains its results.
func kubeletProber(pods []*corev1.Pod, failed *failures) func(context.Context) {
	known := kubepod.NewBasicPodManager()
	statuses := status.NewManager(nil, known, nil, kubeletutil.NewPodStartupLatencyTracker())
	for _, pod := range pods {
		known.AddPod(pod)
		statuses.SetPodStatus(klog.Background(), pod, pod.Status)
	}
	liveness, readiness, startup := results.NewManager(), results.NewManager(), results.NewManager()
	manager := prober.NewManager(statuses, liveness, readiness, startup, nil, eventCounter{failures: failed})
	return func(ctx context.Context) {
		go func() {
			for range readiness.Updates() {
			}
		}()
		for _, pod := range pods {
			manager.AddPod(ctx, pod)
		}
	}
}

// ourProber creates a Set, and returns a function that sets its targets and starts it.
func ourProber(fresh bool) func([]*corev1.Pod, *failures) func(context.Context) {
	return func(pods []*corev1.Pod, failed *failures) func(context.Context) {
		set := ours.NewSet(ours.Options{Hooks: ours.Hooks{
			ProbeFinished: func(_ ours.Key, r ours.Result, err error, _ time.Duration) {
				if err != nil || r.Outcome != ours.Success {
					failed.add(fmt.Sprintf("%v: %s, error %v", r.Outcome, r.Output, err))
				}
			},
		}})
		options := podprobe.Options{Pool: ourshttp.NewPool(ourshttp.PoolOptions{}), FreshConnections: fresh}
		return func(ctx context.Context) {
			var all []ours.Target
			for _, pod := range pods {
				targets, errs := podprobe.Targets(pod, &pod.Status, nil, options)
				for _, err := range errs {
					failed.add(err.Error())
				}
				all = append(all, targets...)
			}
			if err := set.Sync(all); err != nil {
				failed.add(err.Error())
			}
			go func() { _ = set.Run(ctx) }()
		}
	}
}

// failures counts failed probes.
type failures struct {
	mu    sync.Mutex // guards the fields below
	n     int64
	first string
}

func (f *failures) add(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n++; f.n == 1 {
		f.first = text
	}
}

func (f *failures) all() (n int64, first string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n, f.first
}

// eventCounter counts the events of the prober manager, one per failed probe.
type eventCounter struct {
	record.EventRecorderLogger
	*failures
}

func (r eventCounter) WithLogger(klog.Logger) record.EventRecorderLogger { return r }

func (r eventCounter) Eventf(_ apiruntime.Object, _, _, format string, args ...any) {
	r.add(fmt.Sprintf(format, args...))
}

// countRequests returns the numbers of answered probes and of accepted connections of the server.
func countRequests(t *testing.T, port int) (asked, opened int64) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Get(fmt.Sprintf("http://%s:%d/count", loopback, port))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var counts [2]int64
	if err := json.NewDecoder(res.Body).Decode(&counts); err != nil {
		t.Fatal(err)
	}
	return counts[0], counts[1]
}

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// minMemoryInUse returns the minimum of several measurements of the memory in use, so that few probes are in flight.
func minMemoryInUse(t *testing.T) float64 {
	t.Helper()
	least := memoryInUse(t)
	for range 9 {
		time.Sleep(200 * time.Millisecond)
		least = min(least, memoryInUse(t))
	}
	return least
}

// memoryInUse returns the bytes of all objects and stacks in use.
func memoryInUse(t *testing.T) float64 {
	t.Helper()
	runtime.GC()
	runtime.GC() // collects the objects that a sync.Pool has retained
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}
