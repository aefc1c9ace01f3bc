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

// State is the input of [Decide] and [Plan]: the desired pod, the observed containers, and the time. Pod and Now are required. If
// another field is zero, nothing is observed for it, or the feature is not used.
type State struct {
	Pod      *corev1.Pod // the desired pod with defaults and with its allocated resources; nil: the pod is orphaned
	Observed cri.Pod
	Now      time.Time
	Deleted  bool // no source lists the pod any more; a deletion timestamp in Pod does not require it
	// Relisted is true if a source lists the deleted pod again. Its containers are stopped, but the exited containers are kept
	// for the next start.
	Relisted bool
	Resize   resize.Decision // decision about the in-place resize of the pod and its containers
	// ResizePod is true if the limits of the pod's cgroup may differ from the pod's resources.
	ResizePod bool
	// CgroupMissing is true if the pod's cgroup does not exist. Containers that run then have no limits, so that the sandbox and
	// all containers are recreated.
	CgroupMissing bool
	Probes        podprobe.Results // results of the containers' probes; nil: none
	// DeviceHealth has the reserved devices of containers for the status, by container name.
	DeviceHealth map[string][]corev1.ResourceStatus
	// DeviceFailures are the times when devices of containers failed, by container name. An instance that started before is stopped,
	// and started again unless its restart policy is Never.
	DeviceFailures map[string]time.Time
	// StoppedSandboxes has the IDs of the sandboxes in state NotReady whose network is torn down. All other sandboxes in this
	// state are stopped again.
	StoppedSandboxes map[string]bool
	// PostStartPending has the IDs of the running containers whose postStart hook has not completed, for example because the
	// agent was killed. The hook is run again.
	PostStartPending []string
	// Eviction is the eviction of the pod, possibly a temporary one. Nil: the pod is not evicted.
	Eviction *podstatus.Eviction
	// ReadmitAt is the time when a temporarily evicted pod may be admitted again. LastEvictionReason is the reason of its last
	// temporary eviction.
	ReadmitAt          time.Time
	LastEvictionReason string
	// Rejection is the reason why the pod must not run on this node: nothing is created for it. Nil: it was not rejected.
	Rejection *podstatus.Rejection
	// RemoveTerminated is true if the remaining containers of a terminated or temporarily evicted pod must be removed from the
	// runtime. The caller has stored the status of the pod.
	RemoveTerminated bool
	// MaxRestartPeriod is the longest CrashLoopBackOff. Zero means 5 minutes.
	MaxRestartPeriod time.Duration

	// last computed status; nil: the status in the pod object
	Previous    *corev1.PodStatus            // last computed status; nil: that of the pod object
	RuntimeName string                       // name of the runtime, the prefix of container IDs
	Waiting     map[string]podstatus.Waiting // reasons why the last starts failed, by container name
	Messages    map[string]string            // termination messages, by container ID
	HostIPs     []netip.Addr                 // IP addresses of the node
}

// Actions are the next actions for a pod. They are executed in this order: stop containers, stop sandboxes, remove containers,
// resize, create a sandbox, start containers, remove sandboxes. The zero value means that there is nothing to do.
type Actions struct {
	Kill                []Kill             // running containers to stop
	StopSandboxes       []string           // IDs of sandboxes to stop; their running containers are in Kill
	RemoveLogs          bool               // remove the logs and files of the pod before its last sandbox is removed
	RemoveContainers    []string           // IDs of exited containers to remove
	Sandbox             *Sandbox           // sandbox to create before containers start; nil: none
	SandboxID           string             // ID of the current sandbox; empty if Sandbox is created
	Resize              []resize.Container // running containers to resize, together with the pod
	ResizePod           bool               // write the resources of the pod to its cgroup, even if no container is resized
	Start               []Start            // containers to start, in this order, independently of each other
	BackOff             []BackOff          // containers that wait for their back-off
	RemoveSandboxes     []string           // IDs of NotReady sandboxes to remove
	PodTerminal         bool               // the pod has terminated or must terminate: nothing is started any more
	WakeAt              time.Time          // when to plan again although nothing has changed; zero: at no particular time
	SandboxChangeReason string             // why the sandbox is replaced, for logs; empty: it is kept
}

// IsIdle reports whether there is nothing to execute now.
func (a *Actions) IsIdle() bool {
	return len(a.Kill) == 0 && len(a.StopSandboxes) == 0 && a.Sandbox == nil && len(a.Start) == 0 &&
		len(a.RemoveContainers) == 0 && len(a.RemoveSandboxes) == 0 && len(a.Resize) == 0 && !a.ResizePod
}

// Sandbox is a sandbox to create.
type Sandbox struct {
	Attempt    uint32
	PodStarted time.Time // start time of the pod, for podstatus.AnnotationStarted; zero: the caller sets it
}

// Kill is a container to stop.
type Kill struct {
	ID, Name string
	Grace    time.Duration // total time for the preStop hook, the wait for the containers in WaitFor, and the stop of the container itself
	Reason   string        // for logs
	Message  string        // message of the Killing event; empty: "Stopping container NAME"
	// PreStop is the hook to run before the container is stopped. Its time counts for Grace. Nil: none.
	PreStop *corev1.LifecycleHandler
	// WaitFor has the names of containers that are stopped at the same time and should exit first. The wait counts for Grace.
	WaitFor []string
}

// EventMessage returns the message of the Killing event that is recorded when the container is stopped. Source:
// killContainer in pkg/kubelet/kuberuntime/kuberuntime_container.go.
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
	// CreatedID is the ID of an existing instance to start, which a previous agent process created and did not start. Empty: a
	// new instance is created.
	CreatedID     string
	PostStartOnly bool   // the container CreatedID runs already, and only its postStart hook is run
	CrashLoop     string // value of AnnotationCrashLoop; empty: the first start
	Generation    int    // number of the last restart of all containers, for podview.AnnotationGeneration
	// TargetID is the ID of the container whose processes an ephemeral container can see; empty: none.
	TargetID string
}

// Annotations returns annotations for the new container, such as its back-off state. A later plan reads them from the
// container.
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

// BackOff is a container in CrashLoopBackOff.
type BackOff struct {
	Name    string
	Until   time.Time
	Delay   time.Duration // the current back-off
	Message string
}

// planner computes the actions for one State.
type planner struct {
	state    State
	terminal bool // the phase of the pod is terminal or becomes terminal, so that no container is started
	view     podview.View
	out      Actions
}

// Plan returns the next actions for a pod. It starts no container if the phase in State.Previous is terminal. To check also
// whether the phase becomes terminal now, call [Decide]. Source: computePodActions in
// pkg/kubelet/kuberuntime/kuberuntime_manager.go.
func Plan(state State) Actions {
	return planActions(&state, state.mustNotStart())
}

// mustNotStart reports whether the plan must start no container, because the pod was evicted or rejected, or has a terminal
// phase.
func (s *State) mustNotStart() bool {
	return s.Previous != nil && podstatus.IsTerminal(s.Previous.Phase) || s.Eviction != nil || s.Rejection != nil
}

// planActions returns the next actions for the pod in state. If terminal is true, because the phase is or becomes terminal,
// the actions only terminate the pod.
func planActions(state *State, terminal bool) Actions {
	if state.Pod == nil || state.Deleted || state.Pod.DeletionTimestamp != nil {
		return Teardown(*state, teardownGrace(state))
	}
	p := planner{state: *state, terminal: terminal, view: podview.New(state.Pod, state.Observed)}
	change := p.view.SandboxChange()
	if p.state.CgroupMissing && !change.Create && podview.IsRunning(p.state.Observed) {
		change = podview.SandboxChange{Create: true, Attempt: change.Attempt + 1, Reason: "the cgroup of the pod is missing"}
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

// hasCompleted reports whether all regular containers of the pod have exited and none of them is restarted.
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

// planSandbox plans to replace the sandbox and to start the containers in it, or marks the pod as terminated.
func (p *planner) planSandbox(change podview.SandboxChange) {
	p.out.SandboxChangeReason = change.Reason
	p.stopPod(GracePeriod(p.state.Pod), change.Reason)
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

// isComplete reports whether the container has succeeded and is not run again, not even in a new sandbox.
func (p *planner) isComplete(container *corev1.Container) bool {
	once := p.state.Pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure
	if container.RestartPolicy != nil {
		once = *container.RestartPolicy == corev1.ContainerRestartPolicyOnFailure
	}
	last := p.view.Newest(container.Name)
	return once && last != nil && last.State == cri.ContainerExited && last.ExitCode == 0
}

// planTermination discards all planned actions. It plans to stop all containers and sandboxes, and marks the pod as
// terminated.
func (p *planner) planTermination() {
	p.out = Actions{PodTerminal: true}
	reason := "its work is done"
	if p.state.Eviction != nil {
		reason = "the pod is evicted: " + p.state.Eviction.Reason
	}
	p.stopPod(teardownGrace(&p.state), reason)
}
