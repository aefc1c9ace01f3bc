// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// State is what [Decide] and [Plan] decide by: what is wanted, what is there, and the time. Pod and Now are required; the zero
// value of anything else is a pod of which the runtime has nothing, and a node without probes, resizes and cgroups.
type State struct {
	Pod      *corev1.Pod // has defaults; with the resources that it may have, as Resize says
	Observed cri.Pod
	Now      time.Time
	Deleted  bool // no source wants the pod any more; a pod object may be deleted without
	// Restart says that a source lists the deleted pod again: it is stopped, and the containers stay for the next start.
	Relisted bool
	Resize   resize.Decision // about the resources of the pod and its containers
	// ResizePod says that the pod's cgroup may have other limits than the resources of the pod ask for.
	ResizePod bool
	// NoCgroup says that the pod's cgroup is missing. What runs all the same runs without limits, so it starts over.
	CgroupMissing bool
	Probes        podprobe.Results // what the probes of the containers say; nil: nothing
	// Stopped has the sandboxes that are not ready, by ID, whose network is known to be torn down. Others are stopped once
	// more.
	StoppedSandboxes map[string]bool
	// PostStartPending are the running containers, by ID, whose postStart hook has not run to its end, as when an agent dies
	// in it.
	PostStartPending []string
	// Eviction is why the pod is ended or held back although it is wanted. Nil: it is not.
	Eviction *podstatus.Eviction
	// HeldUntil is when a pod that is held back may be admitted anew, and HeldFor the reason of the last time that it was.
	ReadmitAt          time.Time
	LastEvictionReason string
	// Rejection is why the pod is not to run here: nothing is made for it. Nil: it was not rejected.
	Rejection *podstatus.Rejection
	// Trim says that what a pod has left that has terminated or is held back is to go from the runtime, too. Its status has to be kept elsewhere.
	RemoveTerminated bool
	// MaxRestartPeriod is the longest back-off of a container that keeps exiting. Zero means 5 minutes.
	MaxRestartPeriod time.Duration

	// What the status of the pod is made from beside that; see podstatus.Input.
	Previous    *corev1.PodStatus            // as decided last; nil: that of the pod object
	RuntimeName string                       // its name, which stands before the IDs of containers
	Waiting     map[string]podstatus.Waiting // why a start failed, by the name of the container
	Messages    map[string]string            // termination messages, by container ID
	HostIPs     []netip.Addr                 // of the node
}

// Actions is what a pod needs next, in the order in which it is done: kill, stop sandboxes, remove containers,
// resize, create a sandbox, start, remove sandboxes. The zero value is a pod that needs nothing.
type Actions struct {
	Kill                []Kill             // running containers to stop
	StopSandboxes       []string           // IDs; what runs in them is in Kill
	RemoveLogs          bool               // the pod's logs and files can go: before the runtime forgets it, or nobody would know of them
	RemoveContainers    []string           // IDs of exited containers that nobody needs any more
	Sandbox             *Sandbox           // to create, before anything is started; nil: none
	SandboxID           string             // of the sandbox in use, when none is created
	Resize              []resize.Container // running containers to give other resources, with those of the pod around them
	ResizePod           bool               // the resources of the pod are to change although those of no running container do
	Start               []Start            // in order; independent of each other
	BackOff             []BackOff          // containers that are to start later
	RemoveSandboxes     []string           // IDs of sandboxes that are not ready and that nobody needs any more
	PodTerminal         bool               // nothing runs and nothing is to be started, ever
	WakeAt              time.Time          // when to decide again although nothing has changed; zero: not by time
	SandboxChangeReason string             // why the sandbox has to go, for logs; empty: it stays
}

// Idle reports whether there is nothing to do now.
func (a *Actions) IsIdle() bool {
	return len(a.Kill) == 0 && len(a.StopSandboxes) == 0 && a.Sandbox == nil && len(a.Start) == 0 &&
		len(a.RemoveContainers) == 0 && len(a.RemoveSandboxes) == 0 && len(a.Resize) == 0 && !a.ResizePod
}

// Sandbox is a sandbox to create.
type Sandbox struct {
	Attempt    uint32
	PodStarted time.Time // when the pod was taken on, for AnnotationStarted; zero: not known to the plan
}

// Kill is a container to stop.
type Kill struct {
	ID, Name string
	Grace    time.Duration // for the hook, the wait for others and the container itself, together
	Reason   string        // for logs
	Message  string        // of the event; empty: that the container is stopped
	// PreStop runs first and takes of the grace period; nil: there is none.
	PreStop *corev1.LifecycleHandler
	// After names containers that are being stopped at the same time, and that end first as long as there is time.
	WaitFor []string
}

// EventMessage returns the message of the event that says so. Source: killContainer in
// pkg/kubelet/kuberuntime/kuberuntime_container.go.
func (k *Kill) EventMessage() string {
	if k.Message != "" {
		return k.Message
	}
	return "Stopping container " + k.Name
}

// Start is a container to start.
type Start struct {
	Container *corev1.Container
	Attempt   uint32
	// CreatedID is a container that was created but never started, by an agent that died in between; starting it
	// anew would be a restart that never happened. Empty: create one.
	CreatedID     string
	PostStartOnly bool   // CreatedID runs, and only its postStart hook is to be run
	CrashLoop     string // value of AnnotationCrashLoop; empty on a first start
	Generation    int    // value of podview.AnnotationGeneration
	// Target is the ID of the container whose processes an ephemeral container sees; empty: its own, or the pod's.
	TargetID string
}

// Annotations returns those that carry the state of the container to its next instance.
func (s *Start) Annotations() map[string]string {
	a := map[string]string{}
	if s.CrashLoop != "" {
		a[AnnotationCrashLoop] = s.CrashLoop
	}
	if s.Generation > 0 {
		a[podview.AnnotationGeneration] = strconv.Itoa(s.Generation)
	}
	return a
}

// BackOff is a container that CrashLoopBackOff keeps from being started.
type BackOff struct {
	Name    string
	Until   time.Time
	Delay   time.Duration // the back-off in force
	Message string
}

// planner makes the actions of one state.
type planner struct {
	state    State
	terminal bool // the phase of the pod is terminal, or will be: nothing is started any more
	view     podview.View
	out      Actions
}

// Plan returns what a pod needs next. A phase in State.Previous that is terminal is never left; whether another one is to
// become terminal is for [Decide] to say. Source: computePodActions in pkg/kubelet/kuberuntime/kuberuntime_manager.go.
func Plan(s State) Actions {
	return planActions(&s, s.mustNotStart())
}

// ended reports whether nothing of the pod is started any more, whatever its containers do.
func (s *State) mustNotStart() bool {
	return s.Previous != nil && podstatus.IsTerminal(s.Previous.Phase) || s.Eviction != nil || s.Rejection != nil
}

func planActions(s *State, terminal bool) Actions {
	if s.Pod == nil || s.Deleted || s.Pod.DeletionTimestamp != nil {
		return Teardown(*s, teardownGrace(s))
	}
	p := planner{state: *s, terminal: terminal, view: podview.New(s.Pod, s.Observed)}
	change := p.view.SandboxChange()
	if p.state.CgroupMissing && !change.Create && podview.Running(p.state.Observed) {
		change = podview.SandboxChange{Create: true, Attempt: change.Attempt + 1, Why: "the cgroup of the pod is missing"}
	}
	switch {
	case p.terminal || p.hasCompleted():
		p.planTermination()
	case change.Create:
		p.planSandbox(change)
	default:
		p.out.SandboxID = change.ID
		p.planContainers()
	}
	p.planRemoval()
	return p.out
}

// completed reports whether every regular container of the pod has exited and none is to be started again.
func (p *planner) hasCompleted() bool {
	for i := range p.state.Pod.Spec.Containers {
		c := &p.state.Pod.Spec.Containers[i]
		last := p.view.Newest(c.Name)
		if last == nil || last.State != cri.ContainerExited || podview.ShouldRestart(&p.state.Pod.Spec, c, last.ExitCode) {
			return false
		}
	}
	return true
}

// planSandbox ends what is there and, if something is still to run, begins anew in a fresh sandbox.
func (p *planner) planSandbox(change podview.SandboxChange) {
	p.out.SandboxChangeReason = change.Why
	p.stopPod(GracePeriod(p.state.Pod), change.Why)
	ran := slices.ContainsFunc(p.state.Observed.Containers, func(c cri.Container) bool {
		return c.State != cri.ContainerCreated && podview.GenerationOf(&c) >= p.view.Generation
	})
	if p.state.Pod.Spec.RestartPolicy == corev1.RestartPolicyNever && change.Attempt != 0 && ran {
		p.out.PodTerminal = true
		return
	}
	var start []*corev1.Container
	for i := range p.state.Pod.Spec.Containers {
		c := &p.state.Pod.Spec.Containers[i]
		if !p.isComplete(c) {
			start = append(start, c)
		}
	}
	if len(start) == 0 && ran {
		p.out.PodTerminal = true
		return
	}
	p.out.Sandbox = &Sandbox{Attempt: change.Attempt}
	if len(p.state.Pod.Spec.InitContainers) > 0 {
		start = []*corev1.Container{&p.state.Pod.Spec.InitContainers[0]}
	}
	for _, c := range start {
		p.planStart(c)
	}
}

// finished reports whether a container did its work once and for all, so that a new sandbox must not repeat it.
func (p *planner) isComplete(c *corev1.Container) bool {
	once := p.state.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	if c.RestartPolicy != nil {
		once = *c.RestartPolicy == corev1.ContainerRestartPolicyOnFailure
	}
	last := p.view.Newest(c.Name)
	return once && last != nil && last.State == cri.ContainerExited && last.ExitCode == 0
}

// end stops everything, for good.
func (p *planner) planTermination() {
	p.out = Actions{PodTerminal: true}
	reason := "its work is done"
	if p.state.Eviction != nil {
		reason = "the pod is evicted: " + p.state.Eviction.Reason
	}
	p.stopPod(teardownGrace(&p.state), reason)
}
