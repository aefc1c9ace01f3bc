// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/admission"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// loopPod is a pod of a Loop: its containers in the runtime, and the state of its syncs. A sync observes the pod, calls plan.Decide and executes
// the actions, as the worker of package lifecycle does.
type loopPod struct {
	loop   *Loop
	id     cri.PodIdentity
	pod    *corev1.Pod
	cgroup cgroups.Path

	// The runtime.
	sandboxes  []*cri.Sandbox
	containers []*loopContainer

	// The observation of the runtime.
	observed   cri.Pod
	listing    bool      // a list call is planned or running
	calling    bool      // the list call is running
	snapshoted bool      // the list call has read the runtime
	listAgain  bool      // another call must follow
	lastList   time.Time // start of the last list call

	// The sync.
	epoch    int       // number of the sync whose calls have an effect
	busy     bool      // actions are executed
	stopping bool      // these actions stop the pod
	lastSync time.Time // end of the last actions: the next sync needs a later observation
	awaiting bool      // the next observation starts a sync, also without a change
	failures int       // syncs in a row that failed
	wakeID   int       // number of the scheduled sync; syncs with a smaller number are cancelled

	admitted  bool
	deleted   bool                 // the API server has no such pod any more
	invalid   *podstatus.Rejection // of a pod that no node can run; nil: the pod is valid
	rejection *podstatus.Rejection
	eviction  *podstatus.Eviction
	onEvicted []func()
	clean     []func() // called when the runtime has no container of the terminated pod

	status   *corev1.PodStatus // last computed status; nil: none since the start of the agent
	phase    corev1.PodPhase   // last published phase
	shown    *corev1.PodStatus // last published status
	starting bool
	replaced []cri.Container
	waiting  *executor.WaitingReasons
	stopped  map[string]bool // IDs of the sandboxes whose network is torn down
	reporter *executor.Reporter
	probes   podProbes
}

// startPod adds a pod that the API server has bound to the node, and syncs it if the agent is ready.
func (l *Loop) startPod(pod *corev1.Pod) {
	l.startSimulated(loopSpec(pod), nil)
}

// loopSpec returns the simulated pod in place of pod, without the environment of its containers, which comes from objects that a
// Loop does not have.
func loopSpec(pod *corev1.Pod) *corev1.Pod {
	run := simulatedPod(pod)
	for _, list := range [][]corev1.Container{run.Spec.InitContainers, run.Spec.Containers} {
		for i := range list {
			list[i].Env, list[i].EnvFrom = nil, nil
		}
	}
	return run
}

// startSimulated adds a pod of the simulated runtime, and syncs it if the agent is ready. The pod is rejected if invalid is not nil.
func (l *Loop) startSimulated(run *corev1.Pod, invalid *podstatus.Rejection) *loopPod {
	p := &loopPod{loop: l, id: identity(run), pod: run, cgroup: podCgroup(run), invalid: invalid, stopped: map[string]bool{}}
	l.pods = append(l.pods, p)
	l.byUID[p.id.UID] = p
	p.resetWorker()
	if l.ready {
		p.sync()
	}
	return p
}

// resetWorker clears the state that an agent has in memory for the pod, as after a restart of the agent.
func (p *loopPod) resetWorker() {
	p.epoch++
	p.busy, p.stopping, p.starting, p.listing, p.listAgain, p.failures = false, false, false, false, false, 0
	p.status, p.replaced, p.waiting = nil, nil, &executor.WaitingReasons{}
	p.onEvicted, p.clean = nil, nil
	p.reporter = executor.NewReporter(p.loop.reports, p.id)
	p.probes = podProbes{pod: p}
	if p.shown != nil {
		p.pod.Status = *p.shown
	}
}

// withStatus returns a copy of the pod with its last published status.
func (p *loopPod) withStatus() *corev1.Pod {
	pod := p.pod.DeepCopy()
	if p.shown != nil {
		p.shown.DeepCopyInto(&pod.Status)
	}
	return pod
}

// hasTerminated reports whether the published status of the pod, or the status in the pod object, has a terminal phase.
func (p *loopPod) hasTerminated() bool {
	return podstatus.IsTerminal(p.pod.Status.Phase) || p.shown != nil && podstatus.IsTerminal(p.shown.Phase)
}

// previousStatus returns the status that the last sync computed. Before the first sync of an agent, it returns the status in
// the pod object.
func (p *loopPod) previousStatus() *corev1.PodStatus {
	if p.status != nil {
		return p.status
	}
	return &p.pod.Status
}

// wakeAt schedules the next sync at the time at, and cancels the sync that was scheduled before. A zero time only cancels.
func (p *loopPod) wakeAt(at time.Time) {
	p.wakeID++
	if at.IsZero() {
		return
	}
	id := p.wakeID
	p.loop.queue.schedule(at, func() {
		if p.wakeID == id {
			p.sync()
		}
	})
}

// sync decides the next actions from the last observation of the pod, and starts to execute them. While the actions of
// another sync run, it only publishes the status.
func (p *loopPod) sync() {
	if !p.loop.ready || p.loop.byUID[p.id.UID] != p {
		return
	}
	if p.busy {
		p.awaiting = true // after the actions
		p.republishStatus()
		return
	}
	if p.observed.Time.Before(p.lastSync) {
		p.awaiting = true // the observation that follows the last actions
		return
	}
	p.awaiting, p.starting, p.replaced = false, false, nil
	observed := podview.AsUnstarted(p.observed)
	if p.deleted {
		p.eviction, p.rejection = nil, nil // as the record of a deleted pod
	}
	if p.deleted && len(observed.Sandboxes)+len(observed.Containers) == 0 {
		p.cleanUp(observed)
		return
	}
	if !p.deleted {
		p.resolveAdmission(observed)
		if p.pod.DeletionTimestamp == nil {
			observed = podview.HideLateSuccessors(p.pod, observed, p.previousStatus())
		}
	}
	s := p.planInput(observed)
	s.StoppedSandboxes, s.RemoveTerminated = p.stoppedSandboxes(observed), len(p.clean) > 0
	actions, st := plan.Decide(s)
	p.waiting.Replace(actions.WaitingReasons(s.Waiting))
	p.publishStatus(observed, &st)
	if !actions.IsIdle() {
		p.executeActions(observed, &actions)
		return
	}
	p.failures = 0
	p.wakeAt(p.loop.fromWallClock(actions.WakeAt))
	if s.RemoveTerminated {
		callAll(&p.clean)
	}
	if actions.PodTerminal && podview.IsTerminated(observed) {
		p.releasePod()
	}
}

// planInput returns the input of plan.Decide for the observed pod.
func (p *loopPod) planInput(observed cri.Pod) plan.State {
	return plan.State{
		Pod: p.pod, Observed: observed, Now: p.loop.wallClock(), Deleted: p.deleted, Probes: p.probes.result, Previous: p.previousStatus(), RuntimeName: "critest",
		Waiting: p.waiting.Get(), HostIPs: p.loop.setup.spec.NodeIPs(), Eviction: p.eviction, Rejection: p.rejection,
	}
}

// stoppedSandboxes returns the IDs of the sandboxes whose network was torn down. It first removes the IDs of sandboxes that are ready or no longer
// exist.
func (p *loopPod) stoppedSandboxes(observed cri.Pod) map[string]bool {
	for id := range p.stopped {
		if !slices.ContainsFunc(observed.Sandboxes, func(s cri.Sandbox) bool { return s.ID == id && s.State != cri.SandboxReady }) {
			delete(p.stopped, id)
		}
	}
	return p.stopped
}

// resolveAdmission admits or rejects a new pod, with the checks of package agent in the same order. It does nothing for a
// pod that was admitted or rejected before.
func (p *loopPod) resolveAdmission(observed cri.Pod) {
	l := p.loop
	if p.admitted || p.rejection != nil {
		return
	}
	if len(observed.Sandboxes)+len(observed.Containers) > 0 || p.pod.DeletionTimestamp != nil || podstatus.IsTerminal(p.pod.Status.Phase) {
		p.admitted = true
		return
	}
	var err error
	if p.invalid != nil {
		err = p.invalid
	} else if refusal, ok := errors.AsType[*podevict.Refusal](podevict.Admit(p.pod, l.evictor.conditions, false)); ok {
		err = &podstatus.Rejection{Reason: refusal.Reason, Message: refusal.Message}
	} else if failures := admission.Check(p.pod, l.setup.node, l.activePods()); len(failures) > 0 {
		err = failures[0].Rejection()
	}
	if rejection, ok := errors.AsType[*podstatus.Rejection](err); ok {
		p.rejection = rejection
		p.reporter.RecordWarning(rejection.StatusReason(), executor.Subject{}, "%s", rejection.Message)
		return
	}
	p.admitted = true
}

// publishStatus passes st, the computed status, to the probes, the log and the events, if it has changed. The log shows a terminal phase only when no
// container may still run.
func (p *loopPod) publishStatus(observed cri.Pod, st *corev1.PodStatus) {
	previous := p.previousStatus()
	shown := podstatus.DeferTerminalPhase(p.pod, observed, *st, cmp.Or(p.phase, previous.Phase))
	if p.status != nil && p.phase == shown.Phase && reflect.DeepEqual(*p.status, *st) {
		return
	}
	p.status, p.phase, p.shown = st, shown.Phase, &shown
	p.probes.update(st)
	p.loop.log.recordStatus(p.pod, &shown)
	p.reporter.RecordStatusEvents(previous, st)
	if changed := p.loop.observer.statusChanged; changed != nil {
		changed(p)
	}
}

// republishStatus publishes the status that follows from the last observation.
func (p *loopPod) republishStatus() {
	if p.status == nil {
		return
	}
	observed := podview.AsUnstarted(p.observed)
	if !p.deleted && p.pod.DeletionTimestamp == nil {
		observed = podview.HideReplacement(podview.HideLateSuccessors(p.pod, observed, p.previousStatus()), p.replaced)
	}
	s := p.planInput(observed)
	st := plan.Status(s, s.Waiting, p.starting)
	p.publishStatus(observed, &st)
}

// releasePod removes the cgroup of a terminated pod and calls the functions in onEvicted. If the pod is being deleted, it also deletes the pod from
// the API server.
func (p *loopPod) releasePod() {
	p.removeCgroup()
	callAll(&p.onEvicted)
	if released := p.loop.observer.podReleased; released != nil {
		released(p)
		return
	}
	if p.pod.DeletionTimestamp != nil && !p.deleted {
		p.loop.applyWhenConnected(func() {
			p.loop.queue.after(0, func() {
				p.deleted = true
				p.sync()
			})
		})
	}
}

// callAll calls all functions of a list, and empties it.
func callAll(functions *[]func()) {
	for _, f := range *functions {
		f()
	}
	*functions = nil
}

// cleanUp removes the state, the cgroup and the files of a deleted pod. The runtime must have no container or sandbox of the
// pod.
func (p *loopPod) cleanUp(observed cri.Pod) {
	s := p.planInput(observed)
	st := plan.Status(s, s.Waiting, false)
	p.publishStatus(observed, &st)
	p.removeCgroup()
	p.probes.stop()
	callAll(&p.onEvicted)
	callAll(&p.clean)
	p.loop.kernel.machine.RemoveFiles(p.id.UID)
	delete(p.loop.byUID, p.id.UID)
	p.loop.pods = slices.DeleteFunc(p.loop.pods, func(o *loopPod) bool { return o == p })
	if removed := p.loop.observer.podRemoved; removed != nil {
		removed(p)
	}
}

// removeCgroup removes the cgroup of the pod.
func (p *loopPod) removeCgroup() {
	p.loop.kernel.advance()
	_ = p.loop.kernel.machine.Cgroups().Remove(p.loop.ctx, p.cgroup) // fails only if ctx has ended
	p.loop.requestClasses()
}

// markDeleted sets the deletion timestamp and the deletion grace period of the pod. It cancels a running sync, unless that
// sync stops the pod.
func (p *loopPod) markDeleted() {
	if p.pod.DeletionTimestamp != nil {
		return
	}
	grace := *cmp.Or(p.pod.Spec.TerminationGracePeriodSeconds, new(int64(corev1.DefaultTerminationGracePeriodSeconds)))
	p.setDeletion(metav1.NewTime(p.loop.wallClock()), grace)
}

// setDeletion sets the deletion timestamp and the grace period in seconds, and syncs the pod. It cancels a running sync, unless that
// sync stops the pod and grace is not shorter than before.
func (p *loopPod) setDeletion(at metav1.Time, grace int64) {
	copied := *p.pod
	shorter := copied.DeletionGracePeriodSeconds != nil && grace < *copied.DeletionGracePeriodSeconds
	copied.DeletionTimestamp, copied.DeletionGracePeriodSeconds = &at, &grace
	p.pod = &copied
	if p.busy && (!p.stopping || shorter) {
		p.cancelSync()
	}
	p.sync()
}

// evict terminates the pod for the eviction e, unless the pod has terminated or is evicted already. It calls done when the
// cgroup of the pod is removed.
func (p *loopPod) evict(e podstatus.Eviction, done func()) {
	p.onEvicted = append(p.onEvicted, done)
	if p.eviction == nil && !p.hasTerminated() {
		p.eviction = &e
		if p.busy && !p.stopping {
			p.cancelSync()
		}
	}
	p.sync()
}

// cancelSync cancels the remaining actions of the running sync. The next observation of the pod starts a new sync.
func (p *loopPod) cancelSync() {
	p.epoch++
	p.busy, p.stopping, p.lastSync, p.awaiting = false, false, p.loop.clock(), true
	p.relist()
}
