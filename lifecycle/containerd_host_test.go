// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/objects"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/userns"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// waitLimit is the longest wait for an effect on a real runtime, which other tests use at the same time.
const waitLimit = 2 * time.Minute

// hostAddress is the address of the node.
const hostAddress = "192.0.2.7"

// execRuntime is a container runtime that runs commands in its containers.
type execRuntime interface {
	cri.Runtime
	cri.Execer
}

// host is a node with one pod on a real runtime. Its agent can be killed and restarted at any time. Tests read the status of
// the pod like an API user, and the logs of its containers.
type host struct {
	t        *testing.T
	rt       execRuntime
	name     string // name of the pod and owner of its containers
	image    string
	handlers []cri.RuntimeHandler // handlers of the runtime
	registry string               // registry with the image busybox:1
	shared   string               // directory that the containers of the pod share, as a path in them
	logs     string
	kept     string // directory of hard links to the logs, which preserve removed logs
	podRoot  string // empty for a runtime without mounts
	store    string // file of probe results
	objects  objects.Memory
	restart  bool // the agent is restarted repeatedly

	running sync.Mutex // held while the agent is replaced
	stop    func()     // kills the agent, and waits until its goroutines have returned

	mu         sync.Mutex // guards the fields below
	reconciler *lifecycle.Reconciler
	pod        *corev1.Pod // the desired pod; nil: none
	statuses   []corev1.PodStatus
	errs       []string
}

// newHost returns a node whose agent does not run yet. The pod has the name of the scenario.
func newHost(t *testing.T, rt execRuntime, scenario string, restart bool) *host {
	return &host{
		t: t, rt: rt, name: strings.ReplaceAll(strings.ToLower(scenario), " ", "-"), restart: restart,
		logs: t.TempDir(), kept: t.TempDir(), store: filepath.Join(t.TempDir(), "probes"),
	}
}

// startAgent starts an agent.
func (h *host) startAgent() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.t.Context()))
	generator := pleg.New(h.rt, pleg.Options{})
	probes := probe.NewSet(probe.Options{Store: h.store})
	o := podspec.Options{
		LogRoot: h.logs, HostIPs: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr(hostAddress)} }, ClusterDomain: "cluster.local",
		RuntimeHandlers: func() []cri.RuntimeHandler { return h.handlers },
	}
	if h.podRoot != "" {
		ranges, err := userns.New(h.podRoot, userns.Options{})
		assert.NoError(h.t, err)
		o.UserNamespace = ranges.Assign
	}
	r := newReconciler(h.t, h.rt, generator, lifecycle.Options{
		Owner:   h.name,
		Spec:    o,
		Dirs:    lifecycle.Dirs{Pods: h.podRoot},
		Objects: &h.objects,
		Probes:  podprobe.NewPods(probes, podprobe.Options{Execer: podprobe.CRI(h.rt)}),
		Hooks: lifecycle.Hooks{
			StatusChanged: func(_ *corev1.Pod, st *corev1.PodStatus) {
				h.keepLogs()
				h.mu.Lock()
				defer h.mu.Unlock()
				h.statuses = append(h.statuses, *st)
			},
			Error: func(_ cri.PodIdentity, err error, _ time.Duration) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.errs = append(h.errs, err.Error())
			},
		},
	})
	h.mu.Lock()
	h.reconciler = r
	h.mu.Unlock()
	h.applyPod()
	var wg sync.WaitGroup
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { _ = probes.Run(ctx) })
	wg.Go(func() { _ = r.Run(ctx) })
	h.stop = func() { cancel(); wg.Wait() }
}

// restartAgent kills the agent and starts another one after a pause.
func (h *host) restartAgent(pause time.Duration) {
	h.running.Lock()
	defer h.running.Unlock()
	h.stop()
	time.Sleep(pause)
	h.startAgent()
}

// restartAtRandom restarts the agent a number of times, at random times, until ctx is done.
func (h *host) restartAtRandom(ctx context.Context, times int) {
	for range times {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(2500 * time.Millisecond)):
			h.restartAgent(rand.N(500 * time.Millisecond))
		}
	}
}

// applyPod passes the desired pod to the agent.
func (h *host) applyPod() {
	h.mu.Lock()
	set := lifecycle.PodSet{Source: "test"}
	if h.pod != nil {
		set.Pods = []*corev1.Pod{h.pod.DeepCopy()}
	}
	r := h.reconciler
	h.mu.Unlock()
	if err := r.Set(set); err != nil { // a later agent gets the pod when it starts
		assert.ErrorContains(h.t, err, "Reconciler.Run has returned")
	}
}

// set sets the desired pod; nil: no pod.
func (h *host) set(pod *corev1.Pod) {
	if pod != nil {
		podapi.Default(pod)
	}
	h.mu.Lock()
	h.pod = pod
	h.mu.Unlock()
	h.applyPod()
}

// change changes the desired pod.
func (h *host) change(how func(*corev1.Pod)) {
	h.mu.Lock()
	pod := h.pod.DeepCopy()
	h.mu.Unlock()
	how(pod)
	h.set(pod)
}

// remove deletes the pod like an API server: it is still listed during its grace period.
func (h *host) remove(grace int64) {
	h.change(func(pod *corev1.Pod) {
		if pod.DeletionTimestamp == nil {
			now := metav1.Now()
			pod.DeletionTimestamp = &now
		}
		pod.DeletionGracePeriodSeconds = &grace
	})
}

// status returns the newest status of the pod.
func (h *host) status() corev1.PodStatus {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.statuses) == 0 {
		return corev1.PodStatus{}
	}
	return h.statuses[len(h.statuses)-1]
}

// history returns all statuses of the pod, in short form.
func (h *host) history() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var lines []string
	for _, st := range h.statuses {
		lines = append(lines, podtest.Describe(st))
	}
	return slices.Compact(lines)
}

func (h *host) errors() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(slices.Compact(slices.Clone(h.errs)), "\n")
}

// diagnostics returns the diagnostics of a failed test.
func (h *host) diagnostics() string {
	var has []string
	p, err := h.observed(h.t.Context())
	for _, c := range p.Containers {
		has = append(has, fmt.Sprint(c.Name, " ", c.Attempt, ": ", c.State, " ", c.ExitCode, " ", c.Reason, " ", c.Message))
	}
	list := func(lines []string) string { return "\n  " + strings.Join(lines, "\n  ") }
	return fmt.Sprintf("%s\nstatuses:%s\nterminations:%s\ncontainers said:%s\nthe runtime has: %v%s\nerrors:\n%s",
		h.name, list(h.history()), list(h.terminations()), list(h.logged()), err, list(has), h.errors())
}

// terminations returns the exits of the pod's containers, with the reasons of the runtime.
func (h *host) terminations() (lines []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, st := range h.statuses {
		for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
			if t := c.State.Terminated; t != nil {
				lines = append(lines, fmt.Sprintf("%s exited %d, %s: started %s, %q", c.Name, t.ExitCode, t.Reason, t.StartedAt, t.Message))
			}
		}
	}
	return slices.Compact(lines)
}

// eventually repeats check until it returns nil, and fails with its last error after waitLimit.
func (h *host) eventually(check func() error) {
	h.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.NoError(h.t, err, "after %s: %s", waitLimit, h.diagnostics())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// await waits until the status of the pod, in short form, is want.
func (h *host) await(want string) {
	h.t.Helper()
	h.eventually(func() error {
		if got := podtest.Describe(h.status()); got != want {
			return fmt.Errorf("status is %q, want %q", got, want)
		}
		return nil
	})
}

// awaitOnce waits until any status of the pod so far, in short form, is want.
func (h *host) awaitOnce(want string) {
	h.t.Helper()
	h.eventually(func() error {
		if !slices.Contains(h.history(), want) {
			return fmt.Errorf("status has never been %q", want)
		}
		return nil
	})
}

// termination returns the termination of a container, from the last status that has one.
func (h *host) termination(container string) corev1.ContainerStateTerminated {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, st := range slices.Backward(h.statuses) {
		for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
			if c.Name == container && c.State.Terminated != nil {
				return *c.State.Terminated
			}
		}
	}
	require.FailNow(h.t, "container "+container+" has not terminated")
	return corev1.ContainerStateTerminated{}
}

// observed returns the pod in the runtime.
func (h *host) observed(ctx context.Context) (cri.Pod, error) {
	snap, err := h.rt.List(ctx)
	for p := range snap.Pods() {
		if p.Name == h.name {
			return p, err
		}
	}
	return cri.Pod{}, err
}

// awaitRemoved waits until the runtime and the agent have no objects and files of the pod.
func (h *host) awaitRemoved() {
	h.t.Helper()
	h.eventually(func() error {
		p, err := h.observed(h.t.Context())
		if err != nil {
			return err
		}
		if p.UID != "" {
			return fmt.Errorf("the runtime has %d sandboxes and %d containers", len(p.Sandboxes), len(p.Containers))
		}
		for _, dir := range []string{h.logs, h.podRoot} {
			left, _ := os.ReadDir(dir)
			for _, e := range left {
				if e.Name()[0] != '.' { // names with a dot are files of the agent
					return fmt.Errorf("%s has %s", dir, e.Name())
				}
			}
		}
		return nil
	})
}

// newPod returns a pod of this host with a grace period of three seconds.
func (h *host) newPod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.name, Namespace: "default", UID: types.UID("uid-" + h.name)},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(3)), Containers: containers},
	}
}

// sh returns a container that runs a script. SHARED is the directory that the containers of the pod share.
func (h *host) sh(name, script string) corev1.Container {
	return corev1.Container{
		Name: name, Image: h.image, Command: []string{"sh", "-c", script},
		Env: []corev1.EnvVar{{Name: "SHARED", Value: h.shared}},
	}
}

// hook returns a handler that runs a script in the container.
func (h *host) hook(script string) *corev1.LifecycleHandler {
	return podtest.Exec("sh", "-c", "SHARED="+h.shared+"; "+script)
}
