// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// State is what a [Plan] is made from: what is wanted, what is there, and the time.
type State struct {
	Pod      *corev1.Pod
	Observed cri.Pod
	Now      time.Time
	Final    bool // the pod's phase is Succeeded or Failed: nothing is started any more
	// NoCgroup says that the pod's cgroup is missing. What runs all the same runs without limits, so it starts over.
	NoCgroup bool
}

// Actions is what a pod needs next, in the order in which it is done: kill, stop sandboxes, remove containers, create
// a sandbox, start, remove sandboxes. The zero value is a pod that needs nothing.
type Actions struct {
	Kill           []Kill    // running containers to stop
	StopSandboxes  []string  // IDs; what runs in them is in Kill
	Remove         []string  // IDs of dead containers nobody needs any more
	Sandbox        *Sandbox  // to create, before anything is started; nil: none
	SandboxID      string    // of the sandbox in use, when none is created
	Start          []Start   // in order; independent of each other
	Waiting        []Waiting // containers that are to start later
	RemoveSandbox  []string  // IDs of dead sandboxes nobody needs any more
	Done           bool      // nothing runs and nothing is to be started, ever
	Wake           time.Time // when to plan again although nothing has changed; zero: not by time
	SandboxChanged string    // why the sandbox has to go, for logs; empty: it stays
}

// Idle tells whether there is nothing to do now.
func (a *Actions) Idle() bool {
	return len(a.Kill) == 0 && len(a.StopSandboxes) == 0 && a.Sandbox == nil && len(a.Start) == 0 &&
		len(a.Remove) == 0 && len(a.RemoveSandbox) == 0
}

// Sandbox is a sandbox to create.
type Sandbox struct{ Attempt uint32 }

// Kill is a container to stop.
type Kill struct {
	ID, Name string
	Grace    time.Duration
	Reason   string
}

// Start is a container to start.
type Start struct {
	Container *corev1.Container
	Attempt   uint32
	// CreatedID is a container that was created but never started, by an agent that died in between; starting it
	// anew would be a restart that never happened. Empty: create one.
	CreatedID string
	CrashLoop string // value of AnnotationCrashLoop; empty on a first life
}

// Waiting is a container that is held back.
type Waiting struct {
	Name    string
	Until   time.Time
	Delay   time.Duration // the back-off in force
	Message string
}

// minimumGrace is what every container gets to end by itself, also where the grace period says less. Source:
// pkg/kubelet/kuberuntime/kuberuntime_container.go (minimumGracePeriodInSeconds).
const minimumGrace = 2 * time.Second

// Plan decides what a pod needs next. It is pure: the same state gives the same actions. The containers of
// spec.containers are planned; pods with anything else are refused by [podspec.Unsupported] before they get here.
// Source: computePodActions in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
func Plan(s State) Actions {
	if s.Pod.DeletionTimestamp != nil {
		return Teardown(s.Observed, Grace(s.Pod))
	}
	var a Actions
	change := sandboxChanged(s.Pod, s.Observed.Sandboxes)
	if s.NoCgroup && !change.create && running(s.Observed) {
		change = sandboxChange{create: true, attempt: change.attempt + 1, why: "the cgroup of the pod is missing"}
	}
	if s.Final || over(s) {
		a.Done = true
		a.stopPod(s.Observed, Grace(s.Pod), "its work is done")
	} else if change.create {
		a.planSandbox(s, change)
	} else {
		a.SandboxID = change.id
		a.planContainers(s)
	}
	a.planRemoval(s)
	return a
}

// running tells whether a container of the pod runs.
func running(observed cri.Pod) bool {
	return slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.State == cri.ContainerRunning })
}

// over tells whether every container of the pod has exited and none is to be started again.
func over(s State) bool {
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		last := newestContainer(s.Observed.Containers, c.Name, nil)
		if last == nil || last.State != cri.ContainerExited || ShouldRestart(&s.Pod.Spec, c, last.ExitCode) {
			return false
		}
	}
	return true
}

// Teardown plans the end of a whole pod: what runs is stopped, and what is dead is removed, so that how its containers
// ended can be seen in between. It needs no spec, so that it serves pods that only the runtime knows.
func Teardown(observed cri.Pod, grace time.Duration) Actions {
	a := Actions{Done: true}
	a.stopPod(observed, grace, "the pod is deleted")
	ready := slices.ContainsFunc(observed.Sandboxes, func(s cri.Sandbox) bool { return s.State == cri.SandboxReady })
	if len(a.Kill) > 0 || ready {
		return a
	}
	for i := range observed.Containers {
		if sandboxOf(observed.Sandboxes, &observed.Containers[i]) == nil {
			a.Remove = append(a.Remove, observed.Containers[i].ID)
		}
	}
	for i := range observed.Sandboxes {
		a.RemoveSandbox = append(a.RemoveSandbox, observed.Sandboxes[i].ID)
	}
	return a
}

// Grace returns how long the containers of a pod may take to end: the deletion grace period, else that of the spec,
// at least two seconds.
func Grace(pod *corev1.Pod) time.Duration {
	var seconds int64
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		seconds = *pod.DeletionGracePeriodSeconds
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		seconds = *pod.Spec.TerminationGracePeriodSeconds
	}
	const most = 1 << 32 // seconds; more would overflow a Duration
	return max(time.Duration(min(seconds, most))*time.Second, minimumGrace)
}

// stopPod stops everything that runs and every sandbox. A sandbox that is not ready is stopped too: its network may
// still be there.
func (a *Actions) stopPod(observed cri.Pod, grace time.Duration, reason string) {
	for i := range observed.Containers {
		c := &observed.Containers[i]
		if c.State == cri.ContainerRunning || c.State == cri.ContainerUnknown {
			a.Kill = append(a.Kill, Kill{ID: c.ID, Name: c.Name, Grace: grace, Reason: reason})
		}
	}
	for i := range observed.Sandboxes {
		a.StopSandboxes = append(a.StopSandboxes, observed.Sandboxes[i].ID)
	}
}

// planSandbox ends what is there and, if something is still to run, begins anew in a fresh sandbox.
func (a *Actions) planSandbox(s State, change sandboxChange) {
	a.SandboxChanged = change.why
	a.stopPod(s.Observed, Grace(s.Pod), change.why)
	ran := slices.ContainsFunc(s.Observed.Containers, func(c cri.Container) bool { return c.State != cri.ContainerCreated })
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
	for _, c := range start {
		a.start(s, c, newestContainer(s.Observed.Containers, c.Name, nil))
	}
}

// finished tells whether a container did its work once and for all, so that a new sandbox must not repeat it.
func finished(s State, c *corev1.Container) bool {
	once := s.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	if c.RestartPolicy != nil {
		once = *c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure
	}
	last := newestContainer(s.Observed.Containers, c.Name, nil)
	return once && last != nil && last.State == cri.ContainerExited && last.ExitCode == 0
}

// planContainers decides for each container of a pod with a sound sandbox.
func (a *Actions) planContainers(s State) {
	for i := range s.Pod.Spec.Containers {
		c := &s.Pod.Spec.Containers[i]
		last := newestContainer(s.Observed.Containers, c.Name, nil)
		switch {
		case last == nil || last.State != cri.ContainerRunning:
			if !shouldStart(s.Pod, c, last) {
				continue
			}
			if last != nil && last.State == cri.ContainerUnknown {
				// It may run after all, and two of one name must not.
				a.kill(s, last, "the runtime lost track of it")
			}
			a.start(s, c, last)
		case changed(c, last):
			a.kill(s, last, "its definition changed")
			a.start(s, c, last)
		}
	}
	a.killUnnamed(s)
}

// changed tells whether a running container is no longer the one that the spec asks for.
func changed(want *corev1.Container, have *cri.Container) bool {
	hash, ok := have.Annotations[podspec.AnnotationHash]
	return ok && hash != podspec.Hash(want)
}

// killUnnamed stops containers that the spec does not name any more, and older lives of those it does.
func (a *Actions) killUnnamed(s State) {
	for i := range s.Observed.Containers {
		c := &s.Observed.Containers[i]
		if c.State != cri.ContainerRunning {
			continue
		}
		if !named(s.Pod, c.Name) {
			a.kill(s, c, "the pod has no such container")
		} else if newestContainer(s.Observed.Containers, c.Name, nil) != c {
			a.kill(s, c, "a newer container of the same name exists")
		}
	}
}

func named(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return true
		}
	}
	return false
}

func (a *Actions) kill(s State, c *cri.Container, reason string) {
	a.Kill = append(a.Kill, Kill{ID: c.ID, Name: c.Name, Grace: Grace(s.Pod), Reason: reason})
}

// start plans the next life of a container, now or when its back-off is over. last is its newest life, or nil.
func (a *Actions) start(s State, c *corev1.Container, last *cri.Container) {
	start := Start{Container: c}
	if last != nil {
		start.Attempt = last.Attempt + 1
		if last.State == cri.ContainerCreated {
			// It never ran, so what starts now is not a restart: this one, or another in its place.
			start.Attempt = last.Attempt
			if a.Sandbox == nil && last.SandboxID == a.SandboxID && !changed(c, last) {
				start.CreatedID = last.ID
				a.Start = append(a.Start, start)
				return
			}
		}
	}
	if dead := newestContainer(s.Observed.Containers, c.Name, exited); dead != nil {
		loop, until := parseCrashLoop(dead.Annotations[AnnotationCrashLoop]).next(crashLoopKey(s.Pod, c), dead, s.Now)
		if !until.IsZero() {
			a.wait(s.Pod, c, loop.delay, until)
			return
		}
		start.CrashLoop = loop.String()
	}
	a.Start = append(a.Start, start)
}

func (a *Actions) wait(pod *corev1.Pod, c *corev1.Container, delay time.Duration, until time.Time) {
	a.Waiting = append(a.Waiting, Waiting{
		Name: c.Name, Until: until, Delay: delay,
		Message: "back-off " + delay.String() + " restarting failed container=" + c.Name +
			" pod=" + pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")",
	})
	if a.Wake.IsZero() || until.Before(a.Wake) {
		a.Wake = until
	}
}

// planRemoval lists what is dead and tells nobody anything any more. Of each container its newest exited life stays:
// its exit code is the pod's status, its attempt the restart count, its back-off the next delay. The newest sandbox
// stays, and every sandbox with a container that stays, since its removal would take the container along.
func (a *Actions) planRemoval(s State) {
	for i := range s.Observed.Containers {
		if c := &s.Observed.Containers[i]; a.obsolete(s, c) {
			a.Remove = append(a.Remove, c.ID)
		}
	}
	newest := newestSandbox(s.Observed.Sandboxes)
	for i := range s.Observed.Sandboxes {
		if sb := &s.Observed.Sandboxes[i]; sb != newest && sb.State != cri.SandboxReady && !a.needed(s, sb) {
			a.RemoveSandbox = append(a.RemoveSandbox, sb.ID)
		}
	}
}

// needed tells whether a sandbox holds a container that stays.
func (a *Actions) needed(s State, sb *cri.Sandbox) bool {
	for i := range s.Observed.Containers {
		if c := &s.Observed.Containers[i]; c.SandboxID == sb.ID && !a.obsolete(s, c) {
			return true
		}
	}
	return false
}

// obsolete tells whether a container can go: it is dead, or was never started, and is not the newest exited one of a
// name in the spec.
func (a *Actions) obsolete(s State, c *cri.Container) bool {
	switch c.State {
	case cri.ContainerCreated:
		return !a.adopts(c.ID)
	case cri.ContainerExited:
		return !named(s.Pod, c.Name) || newestContainer(s.Observed.Containers, c.Name, exited) != c
	}
	return false
}

func (a *Actions) adopts(id string) bool {
	for i := range a.Start {
		if a.Start[i].CreatedID == id {
			return true
		}
	}
	return false
}

func sandboxOf(sandboxes []cri.Sandbox, c *cri.Container) *cri.Sandbox {
	for i := range sandboxes {
		if sandboxes[i].ID == c.SandboxID {
			return &sandboxes[i]
		}
	}
	return nil
}
