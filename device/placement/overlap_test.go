// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/device/placement"
	"github.com/seed81659283/nodeagent/device/poddevice"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/pleg"
)

// overlapMeter measures how long a running container may use a CPU that a running container of a pod "own-..." has exclusively.
type overlapMeter struct {
	t  *testing.T
	rt *critest.Runtime

	mu      sync.Mutex
	since   map[string]time.Time // start of the current overlaps, by the IDs of both containers
	longest time.Duration
	count   int // overlaps
}

// around makes a call of the runtime, and looks for overlaps before and after a call that changes a container.
func (m *overlapMeter) around(ctx context.Context, op, _ string, call func(context.Context) error) error {
	switch op {
	case "StartContainer", "StopContainer", "StopPodSandbox", "UpdateContainerResources":
	default:
		return call(ctx)
	}
	m.observe()
	defer m.observe()
	return call(ctx)
}

// observe starts, continues and ends overlaps by the CPUs of all running containers.
func (m *overlapMeter) observe() {
	m.mu.Lock()
	defer m.mu.Unlock()
	snapshot, err := m.rt.List(context.WithoutCancel(m.t.Context()))
	require.NoError(m.t, err)
	sets := map[string]topology.CPUSet{}
	var owners []string
	for _, c := range snapshot.Containers {
		if c.State != cri.ContainerRunning {
			continue
		}
		set, err := topology.ParseCPUSet(c.Resources.CpusetCPUs)
		require.NoError(m.t, err)
		require.False(m.t, set.IsEmpty(), "%s has no cpuset", c.PodUID)
		if sets[c.ID] = set; strings.HasPrefix(c.PodUID, "own-") {
			owners = append(owners, c.ID)
		}
	}
	current := map[string]time.Time{}
	for _, owner := range owners {
		for id, set := range sets {
			if pair := owner + " " + id; id != owner && set.CountCommon(sets[owner]) > 0 {
				if current[pair] = time.Now(); !m.since[pair].IsZero() {
					current[pair] = m.since[pair]
				} else {
					m.count++
				}
			}
		}
	}
	for pair, since := range m.since {
		if current[pair].IsZero() {
			m.longest = max(m.longest, time.Since(since))
		}
	}
	m.since = current
}

// newCPUTestPod returns a pod with one container. count is its number of exclusive CPUs; zero: it runs in the shared pool.
func newCPUTestPod(uid string, count int) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault, TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{Name: "app", Image: "app", ImagePullPolicy: corev1.PullAlways, TerminationMessagePolicy: corev1.TerminationMessageReadFile}},
	}}
	pod.UID, pod.Name, pod.Namespace = types.UID(uid), uid, "default"
	if count > 0 {
		list := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(count), resource.DecimalSI), corev1.ResourceMemory: resource.MustParse("1Mi")}
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	}
	return pod
}

// busyNode is a node with 64 CPUs and the whole path of a pod in package lifecycle, with a runtime in memory.
type busyNode struct {
	t   *testing.T
	rt  *critest.Runtime
	set func(pods []*corev1.Pod) // replaces the pods
}

// startBusyNode starts a node until the test ends. Latency delays the calls of the runtime, and around observes them. opts completes the options.
func startBusyNode(t *testing.T, latency func(op string) time.Duration, around func(context.Context, string, string, func(context.Context) error) error, opts placement.Options) (n *busyNode, stop func()) {
	machine, err := topology.Parse("1 socket 1 node 64 cores")
	require.NoError(t, err)
	opts.Policy, err = cpus.NewPolicy(machine, cpus.Config{Policy: cpus.PolicyStatic, ReservedMillis: 1000})
	require.NoError(t, err)
	n = &busyNode{t: t, rt: critest.New(critest.Options{})}
	observed := &critest.Interceptor{Runtime: critest.SummaryRuntime{Runtime: n.rt}, Around: around} // at the moment of each effect
	runtime := &critest.Interceptor{Runtime: observed, Latency: func(op, _ string) time.Duration { return latency(op) }}
	generator := pleg.New(runtime, pleg.Options{})
	opts.Containers, opts.Updater = generator, runtime
	opts.Devices, err = poddevice.New(poddevice.Options{})
	require.NoError(t, err)
	placed, err := placement.New(opts)
	require.NoError(t, err)
	reconciler, err := lifecycle.New(runtime, generator, lifecycle.Options{Devices: placed})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context) error{generator.Run, placed.Run, reconciler.Run} {
		wg.Go(func() { _ = run(ctx) })
	}
	n.set = func(pods []*corev1.Pod) {
		require.NoError(t, reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
	}
	return n, func() { cancel(); wg.Wait() }
}

// countRunning returns the number of running containers.
func (n *busyNode) countRunning() (count int) {
	snapshot, err := n.rt.List(n.t.Context())
	require.NoError(n.t, err)
	for _, c := range snapshot.Containers {
		if c.State == cri.ContainerRunning {
			count++
		}
	}
	return count
}

// measureOverlaps runs a node whose runtime needs latency for each call, and update for each update. 40 pods in the shared pool run all the time. In each
// of five rounds, ten pods with exclusive CPUs and ten pods in the shared pool start, in the first round at once, and are removed.
func measureOverlaps(t *testing.T, latency, update time.Duration, kubelet placement.Kubelet) *overlapMeter {
	m := &overlapMeter{t: t}
	n, stop := startBusyNode(t, func(op string) time.Duration {
		if op == "UpdateContainerResources" {
			return update
		}
		return latency
	}, m.around, placement.Options{Kubelet: kubelet})
	defer stop()
	m.rt = n.rt
	var pods []*corev1.Pod
	for i := range 40 {
		pods = append(pods, newCPUTestPod(fmt.Sprint("burner-", i), 0))
	}
	n.set(pods)
	time.Sleep(time.Minute)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 5 {
		var added []*corev1.Pod
		for i := range 10 {
			added = append(added, newCPUTestPod(fmt.Sprint("own-", round, "-", i), 4), newCPUTestPod(fmt.Sprint("shared-", round, "-", i), 0))
		}
		for i := range added {
			if round > 0 {
				time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond)
			}
			n.set(append(pods[:40:40], added[:i+1]...))
		}
		time.Sleep(time.Minute)
		require.Equal(t, 60, n.countRunning())
		n.set(pods)
		time.Sleep(time.Minute)
	}
	m.observe()
	return m
}

// A container that owns CPUs never runs while another running container may use one of them, also while twenty pods start at once and calls of the
// runtime are slow. The order of the kubelet, in which the shared pool follows later, shows that the test would measure an overlap.
func TestNoContainerRunsOnExclusiveCPUs(t *testing.T) {
	for _, latency := range []struct{ call, update time.Duration }{
		{0, 0},
		{20 * time.Millisecond, 20 * time.Millisecond},
		{200 * time.Millisecond, 20 * time.Millisecond},
		{20 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(fmt.Sprint(latency), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := measureOverlaps(t, latency.call, latency.update, placement.Kubelet{})
				t.Logf("%d overlaps, the longest has %v", m.count, m.longest)
				require.Zero(t, m.count, "overlaps; the longest has %v", m.longest)
				require.Zero(t, m.longest)
			})
		})
	}
	t.Run("shared pool later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := measureOverlaps(t, 20*time.Millisecond, 500*time.Millisecond, placement.Kubelet{LateShared: true})
			t.Logf("%d overlaps, the longest has %v", m.count, m.longest)
			require.NotZero(t, m.count)
			require.Positive(t, m.longest)
		})
	})
}

// A node on which nothing changes for an hour, with 250 pods, updates no container, and does not write the record.
func TestIdleNodeUpdatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls sync.Map
		record := filepath.Join(t.TempDir(), "cpus")
		n, stop := startBusyNode(t, func(string) time.Duration { return time.Millisecond }, func(ctx context.Context, op, _ string, call func(context.Context) error) error {
			count, _ := calls.LoadOrStore(op, new(atomic.Int64))
			count.(*atomic.Int64).Add(1)
			return call(ctx)
		}, placement.Options{CPUs: cpus.AllocatorOptions{Record: record}, IsManaged: func(string) bool { return true }})
		defer stop()
		var pods []*corev1.Pod
		for i := range 250 {
			count := 0
			if i%25 == 0 {
				count = 4
			}
			pods = append(pods, newCPUTestPod(fmt.Sprint("pod-", i), count))
		}
		n.set(pods)
		time.Sleep(10 * time.Minute)
		require.Equal(t, 250, n.countRunning())
		counts := func() map[string]int64 {
			all := map[string]int64{}
			for op, count := range calls.Range {
				all[op.(string)] = count.(*atomic.Int64).Load()
			}
			for _, op := range []string{"List", "ListPod", "ListPodSandbox", "ListContainers", "GetContainerEvents"} { // of the PLEG
				delete(all, op)
			}
			return all
		}
		before := counts()
		file, err := os.Stat(record)
		require.NoError(t, err)
		time.Sleep(time.Hour)
		require.Equal(t, before, counts())
		require.Positive(t, before["UpdateContainerResources"])
		now, err := os.Stat(record)
		require.NoError(t, err)
		require.True(t, os.SameFile(file, now), "the record was replaced")
		require.Equal(t, file.ModTime(), now.ModTime())
	})
}
