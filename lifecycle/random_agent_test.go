// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/userns"
	"github.com/seed81659283/nodeagent/pleg"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
	"github.com/seed81659283/nodeagent/qos"
)

// killableAgent is an agent with all of its parts that can be killed between any two calls of the runtime. A restarted agent
// finds its files below dir.
type killableAgent struct {
	reconciler *lifecycle.Reconciler
	kill       context.CancelFunc
	dead       atomic.Bool
	ended      sync.WaitGroup
}

// environment has the hooks and replaced parts of a killableAgent.
type environment struct {
	write         interceptFunc                        // makes calls that change the runtime or run in a container
	read          interceptFunc                        // makes all other calls except the event stream; nil: they are made directly
	latency       func(op, id string) time.Duration    // of each call
	detailedLists bool                                 // lists have all details, and the runtime has no Inspector
	status        func(*corev1.Pod, *corev1.PodStatus) // called with each published status
	podRemoved    func(cri.PodIdentity)                // called when a pod is removed; may be nil
	log           *slog.Logger                         // may be nil
	kernel        *kernel                              // has the cgroups of pods; may be nil
	groups        lifecycle.PodCgroups                 // cgroups whose calls may kill the agent; may be nil
	volumes       lifecycle.PodResources               // volumes whose calls may kill the agent; may be nil
	devices       lifecycle.Devices                    // devices whose calls may kill the agent; may be nil
	admit         lifecycle.Admit                      // may be nil
}

func newKillableAgent(t *testing.T, rt critest.FullRuntime, dir string, around environment) *killableAgent {
	t.Helper()
	m := &killableAgent{}
	ctx, cancel := context.WithCancel(t.Context())
	m.kill = func() { m.dead.Store(true); cancel() }
	remote := &critest.Interceptor{Runtime: rt, Latency: around.latency}
	remote.Around = func(ctx context.Context, op, id string, call func(context.Context) error) error {
		switch {
		case m.dead.Load():
			return errKilled
		case mutatingOps[op]:
			return around.write(ctx, op, id, call)
		case op == "GetContainerEvents" || around.read == nil:
			return call(ctx)
		}
		return around.read(ctx, op, id, call)
	}
	var via walkRuntime = remote
	if around.detailedLists {
		via = struct{ walkRuntime }{remote}
	}
	set := probe.NewSet(probe.Options{Store: filepath.Join(dir, "probes"), Rand: func() float64 { return 0 }})
	generator := pleg.New(via, pleg.Options{})
	o := lifecycle.Options{
		Dirs: lifecycle.Dirs{Pods: filepath.Join(dir, "pods")}, Pacing: lifecycle.Pacing{Rand: func() float64 { return 0.5 }}, Logger: around.log,
		Probes: podprobe.NewPods(set, podprobe.Options{Execer: podprobe.CRI(via)}),
		Hooks: lifecycle.Hooks{PodRemoved: around.podRemoved, StatusChanged: func(pod *corev1.Pod, st *corev1.PodStatus) {
			if !m.dead.Load() {
				around.status(pod, st)
			}
		}},
	}
	if around.groups != nil {
		o.Cgroups = killableCgroups{around.groups, remote.Around}
		o.Spec.CgroupParent = (*podCgroups)(nil).CgroupParent()
	}
	if around.volumes != nil {
		o.Volumes = killableVolumes{around.volumes, remote.Around}
	}
	if around.devices != nil {
		o.Devices = killableDevices{around.devices, remote.Around}
	}
	o.Admit = around.admit
	o.Spec.LogRoot = filepath.Join(dir, "logs")
	ranges, err := userns.New(o.Dirs.Pods, userns.Options{})
	require.NoError(t, err)
	o.Spec.UserNamespace = ranges.Assign
	o.Spec.RuntimeHandlers = func() []cri.RuntimeHandler { return []cri.RuntimeHandler{{UserNamespaces: true}} }
	run := func(f func(context.Context) error) { m.ended.Go(func() { _ = f(ctx) }) }
	var pods *agentPods
	if around.kernel != nil {
		var tree *podtree.Tree
		tree, pods = around.kernel.podtree(t)
		o.Cgroups = tree
		defer run(tree.Run)
	}
	m.reconciler = newReconciler(t, via, generator, o)
	if pods != nil {
		pods.reconciler.Store(m.reconciler)
	}
	run(generator.Run)
	run(set.Run)
	run(m.reconciler.Run)
	t.Cleanup(m.stop)
	return m
}

// stop kills the agent, if it still runs, and waits until its goroutines have returned.
func (m *killableAgent) stop() {
	m.kill()
	m.ended.Wait()
}

func (m *killableAgent) set(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	require.NoError(t, m.reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}))
}

// killableCgroups are the cgroups of an agent that can be killed at each call.
type killableCgroups struct {
	lifecycle.PodCgroups
	write interceptFunc
}

func (c killableCgroups) Ensure(ctx context.Context, pod *corev1.Pod) error {
	return c.write(ctx, "Ensure", string(pod.UID), func(ctx context.Context) error { return c.PodCgroups.Ensure(ctx, pod) })
}

func (c killableCgroups) Limit(ctx context.Context, pod *corev1.Pod) error {
	return c.write(ctx, "Limit", string(pod.UID), func(ctx context.Context) error { return c.PodCgroups.Limit(ctx, pod) })
}

// killableVolumes are the volumes of an agent that can be killed at each call.
type killableVolumes struct {
	lifecycle.PodResources
	write interceptFunc
}

func (v killableVolumes) Prepare(ctx context.Context, pod *corev1.Pod) error {
	return v.write(ctx, "Prepare", string(pod.UID), func(ctx context.Context) error { return v.PodResources.Prepare(ctx, pod) })
}

func (v killableVolumes) Release(ctx context.Context, uid string) error {
	return v.write(ctx, "Release", uid, func(ctx context.Context) error { return v.PodResources.Release(ctx, uid) })
}

// killableDevices are the devices of an agent that can be killed at each call.
type killableDevices struct {
	lifecycle.Devices
	write interceptFunc
}

func (d killableDevices) Reserve(ctx context.Context, pod *corev1.Pod) error {
	return d.write(ctx, "Reserve", string(pod.UID), func(ctx context.Context) error { return d.Devices.Reserve(ctx, pod) })
}

func (d killableDevices) Release(ctx context.Context, uid string) error {
	return d.write(ctx, "Release", uid, func(ctx context.Context) error { return d.Devices.Release(ctx, uid) })
}

var errKilled = errors.New("the agent is dead")

// interceptFunc makes or omits a call to the runtime; see critest.Interceptor.
type interceptFunc func(ctx context.Context, op, id string, call func(context.Context) error) error

// mutatingOps are the operations that change the runtime or run in a container.
var mutatingOps = map[string]bool{
	"RunPodSandbox": true, "StopPodSandbox": true, "RemovePodSandbox": true, "CreateContainer": true, "StartContainer": true,
	"StopContainer": true, "RemoveContainer": true, "ExecSync": true, "Ensure": true, "Limit": true, "Prepare": true, "Reserve": true, "Release": true,
}

// walkRuntime has the interfaces of an Interceptor, except the Inspector.
type walkRuntime interface {
	cri.Runtime
	cri.PodLister
	cri.EventStreamer
	cri.Execer
	cri.Updater
	cri.StatsLister
	cri.StatusReporter
	cri.Images
	cri.Puller
}

// detailedRuntime returns lists with all details, like a runtime without an Inspector.
type detailedRuntime struct{ critest.SummaryRuntime }

func (d detailedRuntime) List(ctx context.Context) (cri.Snapshot, error) { return d.Runtime.List(ctx) }

func (d detailedRuntime) ListPod(ctx context.Context, uid string) (cri.Pod, error) {
	return d.Runtime.ListPod(ctx, uid)
}

// remove removes a pod. The manifest of a static pod is often rewritten within seconds.
func (w *walker) remove(name string) {
	pod := w.pods[name]
	delete(w.pods, name)
	w.apply()
	if pod == nil || !qos.IsStatic(pod) || !w.chance(70) {
		return
	}
	time.Sleep(w.seconds(5))
	if w.pods[name] = pod; w.agent.dead.Load() {
		w.restartAgent()
	}
	w.apply()
}
