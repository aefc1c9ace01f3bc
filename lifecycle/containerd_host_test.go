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

// waitLimit is the longest wait for something that happens on a real runtime, which others keep busy.
const waitLimit = 2 * time.Minute

// hostAddress is what the node is told that its address is.
const hostAddress = "192.0.2.7"

// execRuntime is a container runtime that runs commands in its containers.
type execRuntime interface {
	cri.Runtime
	cri.Execer
}

// host is a node with one pod on a real runtime: an agent that can end and start anew at any moment, and what outlives
// it. What became of the pod is read as an API user reads it, and from what its containers said.
type host struct {
	t        *testing.T
	rt       execRuntime
	name     string // of the pod and of the agent
	image    string
	handlers []cri.RuntimeHandler // of the runtime
	registry string               // that holds it as busybox:1 as well
	shared   string               // directory that the containers of the pod share, as they see it
	logs     string
	kept     string // directory of links to the logs, which outlive their names
	podRoot  string // empty with a runtime that mounts nothing
	store    string // of what probes have found
	objects  objects.Memory
	restart  bool // the agent is restarted again and again

	running sync.Mutex // held by whoever replaces the agent
	stop    func()     // ends the agent as a crash would, and waits until its goroutines have returned

	mu         sync.Mutex // guards what follows
	reconciler *lifecycle.Reconciler
	pod        *corev1.Pod // that is wanted; nil: none
	statuses   []corev1.PodStatus
	errs       []string
}

// newHost returns a node with an agent that does not run yet. The name of the scenario is that of its pod.
func newHost(t *testing.T, rt execRuntime, scenario string, restart bool) *host {
	return &host{
		t: t, rt: rt, name: strings.ReplaceAll(strings.ToLower(scenario), " ", "-"), restart: restart,
		logs: t.TempDir(), kept: t.TempDir(), store: filepath.Join(t.TempDir(), "probes"),
	}
}

// boot starts an agent.
func (h *host) boot() {
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
	h.tell()
	var wg sync.WaitGroup
	wg.Go(func() { _ = generator.Run(ctx) })
	wg.Go(func() { _ = probes.Run(ctx) })
	wg.Go(func() { _ = r.Run(ctx) })
	h.stop = func() { cancel(); wg.Wait() }
}

// reboot ends the agent and starts another, after a pause.
func (h *host) reboot(pause time.Duration) {
	h.running.Lock()
	defer h.running.Unlock()
	h.stop()
	time.Sleep(pause)
	h.boot()
}

// disturb restarts the agent a number of times, at random moments, unless ctx ends first.
func (h *host) disturb(ctx context.Context, times int) {
	for range times {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rand.N(2500 * time.Millisecond)):
			h.reboot(rand.N(500 * time.Millisecond))
		}
	}
}

// tell tells the agent what is wanted.
func (h *host) tell() {
	h.mu.Lock()
	set := lifecycle.PodSet{Source: "test"}
	if h.pod != nil {
		set.Pods = []*corev1.Pod{h.pod.DeepCopy()}
	}
	r := h.reconciler
	h.mu.Unlock()
	if err := r.Set(set); err != nil { // the next agent is told when it begins
		assert.ErrorContains(h.t, err, "Reconciler.Run has returned")
	}
}

// set makes a pod the one that is wanted; nil: none is.
func (h *host) set(pod *corev1.Pod) {
	if pod != nil {
		podapi.Default(pod)
	}
	h.mu.Lock()
	h.pod = pod
	h.mu.Unlock()
	h.tell()
}

// change changes the pod that is wanted.
func (h *host) change(how func(*corev1.Pod)) {
	h.mu.Lock()
	pod := h.pod.DeepCopy()
	h.mu.Unlock()
	how(pod)
	h.set(pod)
}

// remove deletes the pod as an API server does: it has some time to end, and is still wanted meanwhile.
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

// history returns the statuses that the pod has had, in short.
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

// account is what a test that fails has to say.
func (h *host) account() string {
	var has []string
	p, err := h.observed(h.t.Context())
	for _, c := range p.Containers {
		has = append(has, fmt.Sprint(c.Name, " ", c.Attempt, ": ", c.State, " ", c.ExitCode, " ", c.Reason, " ", c.Message))
	}
	list := func(lines []string) string { return "\n  " + strings.Join(lines, "\n  ") }
	return fmt.Sprintf("%s\nstatuses:%s\nterminations:%s\ncontainers said:%s\nthe runtime has: %v%s\nerrors:\n%s",
		h.name, list(h.history()), list(h.terminations()), list(h.said()), err, list(has), h.errors())
}

// terminations returns how the containers of the pod have exited, and what the runtime said about it.
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

// eventually asks until there is no error, and fails with the last one when the time is up.
func (h *host) eventually(check func() error) {
	h.t.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			require.NoError(h.t, err, "after %s: %s", waitLimit, h.account())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// await waits until the status of the pod is, in short, as wanted.
func (h *host) await(want string) {
	h.t.Helper()
	h.eventually(func() error {
		if got := podtest.Describe(h.status()); got != want {
			return fmt.Errorf("status is %q, want %q", got, want)
		}
		return nil
	})
}

// awaitOnce waits until the status of the pod has been, in short, as wanted.
func (h *host) awaitOnce(want string) {
	h.t.Helper()
	h.eventually(func() error {
		if !slices.Contains(h.history(), want) {
			return fmt.Errorf("status has never been %q", want)
		}
		return nil
	})
}

// end returns how a container of the pod has ended, as a status told it last.
func (h *host) end(container string) corev1.ContainerStateTerminated {
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
	require.FailNow(h.t, "container "+container+" has not ended")
	return corev1.ContainerStateTerminated{}
}

// observed returns what the runtime has of the pod.
func (h *host) observed(ctx context.Context) (cri.Pod, error) {
	snap, err := h.rt.List(ctx)
	for p := range snap.Pods() {
		if p.Name == h.name {
			return p, err
		}
	}
	return cri.Pod{}, err
}

// awaitGone waits until neither the runtime nor the agent has anything left of the pod.
func (h *host) awaitGone() {
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
				if e.Name()[0] != '.' { // those are the agent's own
					return fmt.Errorf("%s has %s", dir, e.Name())
				}
			}
		}
		return nil
	})
}

// newPod returns a pod of this host, whose containers have three seconds to end.
func (h *host) newPod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: h.name, Namespace: "default", UID: types.UID("uid-" + h.name)},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(3)), Containers: containers},
	}
}

// sh returns a container that runs a script, in which SHARED is the directory that the containers of the pod share.
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
