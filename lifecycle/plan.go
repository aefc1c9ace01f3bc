// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// State is what a [Plan] is made from: what is wanted, what is there, and the time. Pod and Now are required; the zero
// value of anything else is a pod of which the runtime has nothing, and a node without probes, resizes and cgroups.
type State struct {
	Pod      *corev1.Pod // has been through podspec.Default
	Observed cri.Pod
	Now      time.Time
	Final    bool // the phase that [Status] gives is Succeeded or Failed: nothing is started any more
	// NoCgroup says that the pod's cgroup is missing. What runs all the same runs without limits, so it starts over.
	NoCgroup bool
	Probes   podprobe.Results // what the probes of the containers say; nil: nothing
	Resizes  []Resize         // what PlanResize says of the containers that run
	// ResizePod says that the pod's cgroup may have other limits than the resources of the pod ask for.
	ResizePod bool
	// Stopped has the dead sandboxes, by ID, whose network is known to be given back. Others are stopped once more.
	Stopped map[string]bool
	// Unhooked are the running containers, by ID, whose postStart hook has not run to its end, as when an agent dies in it.
	Unhooked []string
	// MaxRestartPeriod is the longest back-off of a container that keeps exiting. Zero means 5 minutes.
	MaxRestartPeriod time.Duration

	round int // of the lives that count; see round.go
}

// Actions is what a pod needs next, in the order in which it is done: kill, stop sandboxes, remove containers,
// resize, create a sandbox, start, remove sandboxes. The zero value is a pod that needs nothing.
type Actions struct {
	Kill           []Kill    // running containers to stop
	StopSandboxes  []string  // IDs; what runs in them is in Kill
	Forget         bool      // the pod's logs and files can go: before the runtime forgets it, or nobody would know of them
	Remove         []string  // IDs of dead containers nobody needs any more
	Sandbox        *Sandbox  // to create, before anything is started; nil: none
	SandboxID      string    // of the sandbox in use, when none is created
	Resize         []Resize  // running containers to give other resources, with those of the pod around them
	ResizePod      bool      // the resources of the pod are to change although those of no running container do
	Start          []Start   // in order; independent of each other
	Waiting        []Waiting // containers that are to start later
	RemoveSandbox  []string  // IDs of dead sandboxes nobody needs any more
	Done           bool      // nothing runs and nothing is to be started, ever
	Wake           time.Time // when to plan again although nothing has changed; zero: not by time
	SandboxChanged string    // why the sandbox has to go, for logs; empty: it stays

	podIPs []corev1.PodIP // of the pod, as its status says when this begins to be done
}

// Idle tells whether there is nothing to do now.
func (a *Actions) Idle() bool {
	return len(a.Kill) == 0 && len(a.StopSandboxes) == 0 && a.Sandbox == nil && len(a.Start) == 0 &&
		len(a.Remove) == 0 && len(a.RemoveSandbox) == 0 && len(a.Resize) == 0 && !a.ResizePod
}

// Sandbox is a sandbox to create.
type Sandbox struct {
	Attempt uint32
	Started time.Time // when the pod was taken on, for AnnotationStarted; zero: not known to the plan
}

// Kill is a container to stop.
type Kill struct {
	ID, Name string
	Grace    time.Duration // for the hook, the wait for others and the container itself, together
	Reason   string
	// PreStop runs first and takes of the grace period; nil: there is none.
	PreStop *corev1.LifecycleHandler
	// After names containers that are being stopped at the same time, and that end first as long as there is time.
	After []string
}

// Start is a container to start.
type Start struct {
	Container *corev1.Container
	Attempt   uint32
	// CreatedID is a container that was created but never started, by an agent that died in between; starting it
	// anew would be a restart that never happened. Empty: create one.
	CreatedID string
	Running   bool   // CreatedID runs, and only its postStart hook is to be run
	CrashLoop string // value of AnnotationCrashLoop; empty on a first life
	Round     int    // value of AnnotationRound
	// Target is the ID of the container whose processes an ephemeral container sees; empty: its own, or the pod's.
	Target string
}

// annotations are those that carry the state of the container to its next life.
func (s *Start) annotations() map[string]string {
	a := map[string]string{}
	if s.CrashLoop != "" {
		a[AnnotationCrashLoop] = s.CrashLoop
	}
	if s.Round > 0 {
		a[AnnotationRound] = strconv.Itoa(s.Round)
	}
	return a
}

// Waiting is a container that CrashLoopBackOff holds back. [StatusInput] takes it as a [Held] of that reason.
type Waiting struct {
	Name    string
	Until   time.Time
	Delay   time.Duration // the back-off in force
	Message string
}

// Plan decides what a pod needs next. It is pure: the same state gives the same actions. Whether the pod has ended is
// for [Status] to say, which also knows its deadline: ask that first, hand on what it says as State.Final, and come
// back at [Deadline] where that is before Actions.Wake. Source: computePodActions in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go.
func Plan(s State) Actions {
	if s.Pod.DeletionTimestamp != nil {
		return teardown(&s, Grace(s.Pod))
	}
	s.round, _ = round(s.Pod, s.Observed)
	var a Actions
	change := sandboxChanged(s.Pod, s.Observed.Sandboxes)
	if s.NoCgroup && !change.create && running(s.Observed) {
		change = sandboxChange{create: true, attempt: change.attempt + 1, why: "the cgroup of the pod is missing"}
	}
	switch {
	case s.Final || over(&s):
		a.end(&s)
	case change.create:
		a.planSandbox(&s, change)
	default:
		a.SandboxID = change.id
		a.planContainers(&s)
	}
	a.planRemoval(&s)
	return a
}

// running tells whether a container of the pod runs.
func running(observed cri.Pod) bool {
	return slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.State == cri.ContainerRunning })
}

// over tells whether every container of the pod has exited and none is to be started again.
func over(s *State) bool {
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		last := s.newest(c.Name)
		if last == nil || last.State != cri.ContainerExited || ShouldRestart(&s.Pod.Spec, c, last.ExitCode) {
			return false
		}
	}
	return true
}

// planSandbox ends what is there and, if something is still to run, begins anew in a fresh sandbox.
func (a *Actions) planSandbox(s *State, change sandboxChange) {
	a.SandboxChanged = change.why
	a.stopPod(s, Grace(s.Pod), change.why)
	ran := slices.ContainsFunc(s.Observed.Containers, func(c cri.Container) bool {
		return c.State != cri.ContainerCreated && roundOf(&c) >= s.round
	})
	if s.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever && change.attempt != 0 && ran {
		a.Done = true
		return
	}
	var start []*corev1.Container
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		if !finished(s, c) {
			start = append(start, c)
		}
	}
	if len(start) == 0 && ran {
		a.Done = true
		return
	}
	a.Sandbox = &Sandbox{Attempt: change.attempt}
	if len(s.Pod.Spec.InitContainers) > 0 {
		start = []*corev1.Container{&s.Pod.Spec.InitContainers[0]}
	}
	for _, c := range start {
		a.start(s, c)
	}
}

// finished tells whether a container did its work once and for all, so that a new sandbox must not repeat it.
func finished(s *State, c *corev1.Container) bool {
	once := s.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	if c.RestartPolicy != nil {
		once = *c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure
	}
	last := s.newest(c.Name)
	return once && last != nil && last.State == cri.ContainerExited && last.ExitCode == 0
}

// end stops everything, for good.
func (a *Actions) end(s *State) {
	*a = Actions{Done: true}
	a.stopPod(s, Grace(s.Pod), "its work is done")
}

// newest returns the newest life of a container that counts, in whatever sandbox, or nil.
func (s *State) newest(name string) *cri.Container {
	last := newestContainer(s.Observed.Containers, name, nil)
	if last == nil || s.round > 0 && roundOf(last) < s.round {
		return nil
	}
	return last
}

// inSandbox returns the newest life of a container that counts, in one sandbox, or nil.
func (s *State) inSandbox(name, sandboxID string) *cri.Container {
	if last := s.newest(name); last != nil && last.SandboxID == sandboxID {
		return last
	}
	return nil
}
