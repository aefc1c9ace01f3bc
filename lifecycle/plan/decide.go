// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Decide returns the next actions for a pod, and the status to publish before they are executed. If the phase becomes
// terminal, the actions start no container. For an orphaned pod, whose State.Pod is nil, the status is empty.
//
// The phase may be terminal while containers still run: publish the status through [podstatus.DeferTerminalPhase].
func Decide(state State) (actions Actions, status corev1.PodStatus) {
	if state.Pod == nil {
		return Plan(state), corev1.PodStatus{}
	}
	terminal := state.mustNotStart()
	a := planActions(&state, terminal)
	waiting := a.WaitingReasons(state.Waiting)
	st := Status(state, waiting, false)
	if !terminal && podstatus.IsTerminal(st.Phase) { // for example, its active deadline has just passed
		a = planActions(&state, true)
		st = Status(state, a.WaitingReasons(state.Waiting), false)
	}
	// A temporarily evicted pod fails only after its next admission.
	if deadline := podstatus.Deadline(state.Pod, st.StartTime); !podstatus.IsTerminal(st.Phase) && deadline.After(state.Now) {
		a.WakeAt = sleep.Earlier(a.WakeAt, deadline)
	}
	if state.Eviction.IsTemporary(state.Pod) && state.ReadmitAt.After(state.Now) {
		a.WakeAt = sleep.Earlier(a.WakeAt, state.ReadmitAt)
	}
	return a, st
}

// Status returns the status of the pod in state. waiting maps container names to the reasons why the containers wait. While
// starting is true, exited containers do not make the phase terminal.
func Status(state State, waiting map[string]podstatus.Waiting, starting bool) corev1.PodStatus {
	if state.Rejection != nil {
		return state.Rejection.Status(state.Pod)
	}
	st := podstatus.Of(state.Pod, state.Observed, podstatus.Input{
		Now: state.Now, Previous: state.Previous, RuntimeName: state.RuntimeName, Waiting: waiting, Messages: state.Messages, HostIPs: state.HostIPs,
		Deleted: state.Deleted || state.Pod.DeletionTimestamp != nil, Starting: starting, Probes: state.Probes, Resize: state.Resize,
		DeviceHealth: state.DeviceHealth, Eviction: state.Eviction, LastEvictionReason: state.LastEvictionReason,
	})
	ends := podstatus.IsTerminal(st.Phase) || state.Deleted && !state.Relisted // a deleted static pod may terminate with phase Running
	if ends && !starting && podview.IsTerminated(state.Observed) {
		podstatus.TerminateContainers(&st)
	}
	return st
}

// ReplacedContainers returns the observed containers that the actions replace by new ones: they run and are stopped, or were
// created and are created again. A restart of all containers (RestartAllContainers) is omitted, because the pod status shows
// it in a condition.
func (a *Actions) ReplacedContainers(observed cri.Pod) (replaced []cri.Container) {
	for i := range a.Kill {
		k := &a.Kill[i]
		c := observed.NewestContainer(k.Name)
		if c == nil || c.ID != k.ID || c.State != cri.ContainerRunning {
			continue
		}
		at := slices.IndexFunc(a.Start, func(s Start) bool { return s.Container.Name == k.Name })
		if at >= 0 && a.Start[at].Generation > podview.GenerationOf(c) || at < 0 && a.Sandbox == nil {
			continue
		}
		replaced = append(replaced, *c)
	}
	for i := range a.Start {
		s := &a.Start[i]
		c := observed.NewestContainer(s.Container.Name)
		if c != nil && c.State == cri.ContainerCreated && s.CreatedID == "" && s.Generation == podview.GenerationOf(c) {
			replaced = append(replaced, *c)
		}
	}
	return replaced
}

// WaitingReasons returns why containers wait until the actions are executed, by container name. previous has the reasons of
// failed starts, which containers to start keep. A container in back-off has the reason CrashLoopBackOff.
func (a *Actions) WaitingReasons(previous map[string]podstatus.Waiting) map[string]podstatus.Waiting {
	if len(previous)+len(a.BackOff) == 0 {
		return nil
	}
	now := maps.Clone(previous)
	maps.DeleteFunc(now, func(name string, w podstatus.Waiting) bool {
		return w.Reason == podstatus.ReasonCrashLoopBackOff ||
			!slices.ContainsFunc(a.Start, func(s Start) bool { return s.Container.Name == name })
	})
	for _, b := range a.BackOff {
		if now == nil {
			now = map[string]podstatus.Waiting{}
		}
		now[b.Name] = podstatus.Waiting{Reason: podstatus.ReasonCrashLoopBackOff, Message: b.Message}
	}
	return now
}
