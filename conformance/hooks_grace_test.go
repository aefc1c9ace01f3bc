// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/kubelet"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/pleg"
)

// farewell is a running pod that is deleted or removed from its source, and the duration of its hooks and of the exit of its
// containers.
type farewell struct {
	Pod        *corev1.Pod
	Hook, Stop map[string]time.Duration // by container: duration of its preStop hook, and time between its stop signal and its exit
}

// farewells has the termination of each container.
type farewells map[string]ended

// ended has the times at which the hook of a container ran and at which it was stopped, since the deletion of its pod, and
// the grace period of the stop.
type ended struct{ Hook, Stop, Grace metav1.Duration }

const noHook = -1

// TestHookGrace terminates pods with the kubelet's manager and with a Reconciler. Each has a runtime in memory, in virtual
// time.
func TestHookGrace(t *testing.T) {
	logs := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		comparison := conformance.Comparison[farewell, farewells]{
			Make:       newFarewell,
			Kubelet:    kubeletTerminates,
			Ours:       func(f farewell) farewells { return reconcilerTerminates(f, logs) },
			Exceptions: farewellExceptions,
		}
		comparison.Run(t, flags.AtMost(2_000)) // each input runs a pod from its start to its termination
		requireExceptions(t, comparison, 200)
	})
}

var farewellExceptions = []conformance.Exception[farewell, farewells]{{
	Name:   "short grace",
	Reason: "hooks and sidecars have at least two seconds; in the kubelet they have at least one",
	When:   func(f farewell) bool { return f.grace() < hook.MinimumGrace },
	Want: func(f farewell, _ farewells) farewells {
		f.Pod = f.Pod.DeepCopy()
		f.Pod.DeletionGracePeriodSeconds = new(int64(2))
		return kubeletTerminates(f)
	},
}, {
	Name:   "hook of a pod without grace period",
	Reason: "a pod without grace period has no time for a hook; the kubelet gives it one second",
	When:   func(f farewell) bool { return f.grace() == 0 && f.Pod.DeletionTimestamp == nil },
	Want: func(f farewell, _ farewells) farewells {
		f.Hook = nil
		f.Pod = f.Pod.DeepCopy()
		f.Pod.DeletionGracePeriodSeconds = new(int64(2))
		for _, c := range (scene{Pod: f.Pod}).specs() {
			c.Lifecycle = nil
		}
		return kubeletTerminates(f)
	},
}, {
	Name:   "fraction of a second",
	Reason: "a sidecar waits for other containers until the grace period ends; in the kubelet it waits longer, by the fraction of a second that its hook took",
	When: func(f farewell) bool {
		return slices.ContainsFunc(f.Pod.Spec.InitContainers, func(c corev1.Container) bool { return f.Hook[c.Name]%time.Second > 0 })
	},
	Want: func(f farewell, kubelet farewells) farewells {
		for name, e := range kubelet {
			e.Stop.Duration = min(e.Stop.Duration, max(f.grace(), hook.MinimumGrace))
			kubelet[name] = e
		}
		return kubelet
	},
}}

func (f farewell) grace() time.Duration {
	seconds := f.Pod.Spec.TerminationGracePeriodSeconds
	if f.Pod.DeletionTimestamp != nil {
		seconds = f.Pod.DeletionGracePeriodSeconds
	}
	return time.Duration(*seconds) * time.Second
}

func newFarewell(c *conformance.Choices) farewell {
	f := farewell{
		Pod:  &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u1"}},
		Hook: map[string]time.Duration{}, Stop: map[string]time.Duration{},
	}
	spec := &f.Pod.Spec
	grace := conformance.Pick[int64](c, 30, 10, 5, 3, 2, 1, 0)
	spec.TerminationGracePeriodSeconds = &grace
	if !c.OneIn(3) {
		f.Pod.DeletionTimestamp = &metav1.Time{Time: sceneTime}
		f.Pod.DeletionGracePeriodSeconds = &grace
		spec.TerminationGracePeriodSeconds = conformance.Pick(c, &grace, new(int64(30)))
	}
	always := corev1.ContainerRestartPolicyAlways
	for i := range conformance.Pick(c, 1, 2, 1) {
		spec.Containers = append(spec.Containers, f.container(c, "web"+strconv.Itoa(i)))
	}
	for i := range conformance.Pick(c, 0, 0, 1, 2) {
		sidecar := f.container(c, "init"+strconv.Itoa(i))
		sidecar.RestartPolicy = &always
		spec.InitContainers = append(spec.InitContainers, sidecar)
	}
	podapi.Default(f.Pod)
	return f
}

// container returns a container, and stores how long its hook and its exit take.
func (f farewell) container(c *conformance.Choices, name string) corev1.Container {
	ctr := corev1.Container{Name: name, Image: "v1"}
	f.Stop[name] = duration(c)
	if c.OneIn(2) {
		f.Hook[name] = duration(c)
		ctr.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{name}}}}
	}
	return ctr
}

// duration returns whole seconds as in grace periods, fractions, or an hour.
func duration(c *conformance.Choices) time.Duration {
	const s, ms = time.Second, time.Millisecond
	return conformance.Pick(c, 0, s, 2*s, 3*s, 5*s, 7*s, 12*s, 29*s, time.Hour, 300*ms, 900*ms, 1900*ms, 4500*ms)
}

// journal records the hooks and stops of the containers of one pod.
type journal struct {
	began time.Time

	mu    sync.Mutex
	pages farewells
}

func newJournal() *journal { return &journal{began: time.Now(), pages: farewells{}} }

// noteHook records the start of a container's hook.
func (d *journal) noteHook(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pages[name] = ended{Hook: metav1.Duration{Duration: time.Since(d.began)}}
}

// noteStop records the stop of a container.
func (d *journal) noteStop(name string, at time.Time, grace time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, hooked := d.pages[name]
	if !hooked {
		e.Hook.Duration = noHook
	}
	e.Stop.Duration, e.Grace.Duration = at.Sub(d.began), grace
	d.pages[name] = e
}

// mortal is a runtime whose containers need time to exit.
type mortal struct {
	*runtimeOf
	*journal
	farewell farewell
}

// Run runs a preStop hook.
func (m mortal) Run(
	ctx context.Context, _ kubecontainer.ContainerID, _ *corev1.Pod, c *corev1.Container, _ *corev1.LifecycleHandler,
) (string, error) {
	m.noteHook(c.Name)
	sleep(ctx, m.farewell.Hook[c.Name])
	return "", nil
}

func (m mortal) StopContainer(_ context.Context, id string, seconds int64) error {
	grace := time.Duration(seconds) * time.Second
	name := m.find(id).Name
	m.noteStop(name, time.Now(), grace)
	time.Sleep(min(m.farewell.Stop[name], grace))
	return nil
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func kubeletTerminates(f farewell) farewells {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // and thereby hooks that still run
	s := scene{Pod: f.Pod, Observed: cri.Pod{
		PodIdentity: cri.PodIdentity{UID: string(f.Pod.UID), Name: f.Pod.Name, Namespace: f.Pod.Namespace},
		Sandboxes:   []cri.Sandbox{{ID: "s0", State: cri.SandboxReady}},
	}}
	for _, c := range s.specs() {
		s.Observed.Containers = append(s.Observed.Containers, cri.Container{ID: c.Name + "-0", Name: c.Name, SandboxID: "s0", State: cri.ContainerRunning})
	}
	r := mortal{runtimeOf: newRuntimeOf(s), journal: newJournal(), farewell: f}
	m, err := kuberuntime.NewConformanceManager(ctx, kuberuntime.ConformanceParts{Runtime: r, Images: r, Puller: r, Kubelet: r, OS: r, Hooks: r})
	if err != nil {
		panic(err)
	}
	seconds := kubelet.ConformanceGrace(f.Pod)
	running := kubecontainer.ConvertPodStatusToRunningPod("stand-in", podStatus(ctx, m, s))
	if err := m.KillPod(ctx, f.Pod, running, &seconds); err != nil {
		panic(err)
	}
	return r.pages
}

func reconcilerTerminates(f farewell, logs string) farewells {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var d *journal
	rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
		return critest.Script{
			Stop: &critest.Exit{After: f.Stop[c.Name]},
			Exec: func(ctx context.Context, cmd []string) (cri.ExecResult, error) {
				d.noteHook(cmd[0])
				sleep(ctx, f.Hook[cmd[0]])
				return cri.ExecResult{}, nil
			},
		}
	}})
	generator := pleg.New(rt, pleg.Options{})
	reconciler, err := lifecycle.New(rt, generator, lifecycle.Options{Spec: podspec.Options{LogRoot: logs}})
	if err != nil {
		panic(err)
	}
	running.Go(func() { _ = generator.Run(ctx) })
	running.Go(func() { _ = reconciler.Run(ctx) })

	set := func(pods ...*corev1.Pod) {
		if err := reconciler.Set(lifecycle.PodSet{Source: "test", Pods: pods}); err != nil {
			panic(err)
		}
	}
	pod := f.Pod.DeepCopy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	set(pod)
	await(rt, "StartContainer", len(pod.Spec.Containers)+len(pod.Spec.InitContainers))
	time.Sleep(time.Second) // until the start of the last container is observed
	d = newJournal()
	if f.Pod.DeletionTimestamp != nil {
		set(f.Pod)
	} else {
		set()
	}
	await(rt, "StopPodSandbox", 1)
	for _, c := range rt.Calls("StopContainer") {
		d.noteStop(c.Name[strings.LastIndex(c.Name, "/")+1:], c.Time, c.Grace)
	}
	return d.pages
}

// await waits until the runtime has received the given number of calls of op.
func await(rt *critest.Runtime, op string, times int) {
	for range 600 {
		if len(rt.Calls(op)) >= times {
			return
		}
		time.Sleep(time.Second)
	}
	panic(op + ": too few calls")
}
