// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// planContainers plans which containers of a pod with a ready sandbox are started, restarted, resized or stopped.
func (p *planner) planContainers() {
	p.killEarlierGenerations()
	p.planEphemeral()
	p.out.ResizePod = p.state.ResizePod
	switch p.planInit() {
	case initFailed:
		p.planTermination()
		return
	case initPending:
		p.killStrays()
		return
	}
	kept := 0
	before := len(p.out.Start) + len(p.out.BackOff)
	for i := range p.state.Pod.Spec.Containers {
		if p.planContainer(&p.state.Pod.Spec.Containers[i]) {
			kept++
		}
	}
	if kept == 0 && len(p.out.Start)+len(p.out.BackOff) == before {
		p.planTermination() // sidecars alone do not keep a pod running
		return
	}
	p.killStrays()
}

// planContainer plans the actions for a regular container: it may be started, stopped, replaced or resized. kept is true if its
// running instance continues to run.
func (p *planner) planContainer(container *corev1.Container) (kept bool) {
	last := p.view.Newest(container.Name)
	switch {
	case last == nil || last.State != cri.ContainerRunning:
		if !shouldStart(p.state.Pod, container, last) {
			return false
		}
		if last != nil && last.State == cri.ContainerUnknown {
			// The container may still run, and two instances must not run at once.
			p.addKill(last, "the runtime lost track of it", `Container is in "unknown" state, try killing it before restart`)
		}
		p.planStart(container)
	case isChanged(container, last):
		p.addKill(last, "its definition changed", "Container "+container.Name+" definition changed, will be restarted")
		p.planStart(container)
	default:
		return p.planRunning(container, last)
	}
	return false
}

// planRunning plans a stop, resize or postStart hook for live, the running instance of the container. kept is true if the
// instance continues to run.
func (p *planner) planRunning(container *corev1.Container, live *cri.Container) (kept bool) {
	if failed, must := p.failedProbe(container, live); must {
		p.addProbeKill(live, failed)
		if failed.Restart {
			p.planStart(container)
		}
		return false
	}
	if p.hasFailedDevice(live) {
		p.addDeviceKill(live)
		if shouldRestartAfterUnknownExit(&p.state.Pod.Spec, container) {
			p.planStart(container)
		}
		return false
	}
	if !p.planResize(live) {
		p.planStart(container)
		return false
	}
	if slices.Contains(p.state.PostStartPending, live.ID) {
		p.planPostStart(container, live)
	}
	return true
}

// planPostStart plans to run the postStart hook of live, the running instance of the container.
func (p *planner) planPostStart(container *corev1.Container, live *cri.Container) {
	p.out.Start = append(p.out.Start, Start{Container: container, Attempt: live.Attempt, CreatedID: live.ID, PostStartOnly: true, Generation: p.view.Generation})
}

// planEphemeral plans the start of each ephemeral container that has never run, in any phase of the pod.
func (p *planner) planEphemeral() {
	for i := range p.state.Pod.Spec.EphemeralContainers {
		e := &p.state.Pod.Spec.EphemeralContainers[i]
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		last := p.state.Observed.NewestContainer(c.Name)
		if last != nil && last.State != cri.ContainerCreated || last == nil && p.hasTerminatedBefore(c.Name) {
			continue
		}
		target := p.view.Newest(e.TargetContainerName)
		// The container starts only after its target was created.
		if target == nil && e.TargetContainerName != "" {
			continue
		}
		p.planStart(c)
		if target != nil {
			p.out.Start[len(p.out.Start)-1].TargetID = target.ID
		}
	}
}

// hasTerminatedBefore reports whether the previous pod status shows the named ephemeral container as terminated. The runtime
// may have removed the container since.
func (p *planner) hasTerminatedBefore(name string) bool {
	if p.state.Previous == nil {
		return false
	}
	st := podstatus.FindContainer(p.state.Previous.EphemeralContainerStatuses, name)
	return st != nil && st.State.Terminated != nil
}

// isChanged reports whether the container's definition in the pod spec differs from the definition with which the instance
// was created.
func isChanged(container *corev1.Container, instance *cri.Container) bool {
	hash, ok := instance.Annotations[podspec.AnnotationHash]
	return ok && !podspec.HasHash(container, hash)
}

// failedProbe reports whether a liveness or startup probe of a running instance has failed so that it must be killed.
func (p *planner) failedProbe(container *corev1.Container, live *cri.Container) (failed podprobe.Kill, must bool) {
	if !p.hasProbeResult(container.LivenessProbe, live, probe.Liveness, probe.Failure) && !p.hasProbeResult(container.StartupProbe, live, probe.Startup, probe.Failure) {
		return podprobe.Kill{}, false
	}
	st := corev1.ContainerStatus{Name: container.Name, ContainerID: live.ID}
	st.State.Running = &corev1.ContainerStateRunning{}
	return podprobe.MustKill(p.state.Pod, container, &st, p.state.Probes)
}

// hasFailedDevice reports whether a running instance must be replaced because one of its devices failed after its start.
func (p *planner) hasFailedDevice(live *cri.Container) bool {
	failed, ok := p.state.DeviceFailures[live.Name]
	return ok && live.StartedAt.Before(failed)
}

// addDeviceKill plans to stop a container that has a failed device.
func (p *planner) addDeviceKill(live *cri.Container) {
	p.addKill(live, "a device is unhealthy", "Container "+live.Name+" has an unhealthy device, will be restarted")
}

// hasProbeResult reports whether the latest probe of this kind had this outcome for a running instance. It does not
// allocate.
func (p *planner) hasProbeResult(spec *corev1.Probe, live *cri.Container, kind probe.Kind, outcome probe.Outcome) bool {
	if spec == nil || p.state.Probes == nil {
		return false
	}
	v, ok := p.state.Probes(probe.Key{PodUID: string(p.state.Pod.UID), Container: live.Name, Kind: kind})
	return ok && v.ContainerID == live.ID && v.Outcome == outcome
}

// killStrays plans to stop each running container that should not run, such as one that the pod spec does not define.
func (p *planner) killStrays() {
	for i := range p.state.Observed.Containers {
		c := &p.state.Observed.Containers[i]
		switch {
		case c.State != cri.ContainerRunning && c.State != cri.ContainerUnknown || p.isKilled(c.ID):
		case containers.Named(&p.state.Pod.Spec, c.Name) == nil:
			p.addStrayKill(c, "the pod has no such container")
		case p.state.Observed.NewestContainer(c.Name) != c:
			p.addStrayKill(c, "a newer container of the same name exists")
		case c.SandboxID != p.out.SandboxID:
			p.addStrayKill(c, "it runs in a former sandbox")
		}
	}
}

// isKilled reports whether the plan already stops the container with this ID.
func (p *planner) isKilled(id string) bool {
	return slices.ContainsFunc(p.out.Kill, func(k Kill) bool { return k.ID == id })
}

// addKill plans to stop a container. reason is for logs, and message is the text of the Killing event.
func (p *planner) addKill(container *cri.Container, reason, message string) {
	p.out.Kill = append(p.out.Kill, Kill{
		ID: container.ID, Name: container.Name, Grace: GracePeriod(p.state.Pod), Reason: reason, Message: message, PreStop: PreStopHook(p.state.Pod, container),
	})
}

// addStrayKill plans to stop a running container that should not run. The kubelet would leave it running.
func (p *planner) addStrayKill(container *cri.Container, reason string) {
	p.addKill(container, reason, "Stopping container "+container.Name+": "+reason)
}

func (p *planner) addProbeKill(container *cri.Container, failed podprobe.Kill) {
	k := Kill{ID: container.ID, Name: container.Name, Grace: failed.GracePeriod, Reason: failed.Message, Message: failed.Message, PreStop: PreStopHook(p.state.Pod, container)}
	if spec := containers.Named(&p.state.Pod.Spec, container.Name); spec.Lifecycle != nil && hasOwnGrace(spec, failed.Kind) {
		k.PreStop = spec.Lifecycle.PreStop // even if the pod's grace period is zero
	}
	p.out.Kill = append(p.out.Kill, k)
}

// hasOwnGrace reports whether the liveness or startup probe of the container has its own terminationGracePeriodSeconds. kind
// selects the probe.
func hasOwnGrace(container *corev1.Container, kind probe.Kind) bool {
	p := container.LivenessProbe
	if kind == probe.Startup {
		p = container.StartupProbe
	}
	return p.TerminationGracePeriodSeconds != nil
}

// planStart plans to start the next instance of a container, or its back-off.
func (p *planner) planStart(container *corev1.Container) {
	start := Start{Container: container, Generation: p.view.Generation}
	if last := p.state.Observed.NewestContainer(container.Name); last != nil {
		start.Attempt = p.chooseAttempt(container.Name)
		if last.State == cri.ContainerCreated {
			// The created instance never ran: the next start is not a restart, whether it uses this instance or replaces it.
			start.Attempt = last.Attempt
			if p.out.Sandbox == nil && last.SandboxID == p.out.SandboxID && podview.GenerationOf(last) == p.view.Generation &&
				!isChanged(container, last) && p.pendingResize(last) == nil {
				start.CreatedID = last.ID
				p.out.Start = append(p.out.Start, start)
				return
			}
		}
	}
	dead := p.state.Observed.NewestContainerWhere(container.Name, hasExited)
	switch {
	case dead == nil || p.isExemptFromBackOff(container, dead):
	case p.wasStoppedForRestart(container, dead):
		start.CrashLoop = dead.Annotations[AnnotationCrashLoop]
	default:
		key := crashLoopKey(p.state.Pod, container)
		loop, until := crashLoopOf(dead, key).nextRestart(key, dead, p.state.Now, p.state.MaxRestartPeriod)
		if !until.IsZero() {
			p.addBackOff(p.state.Pod, container, loop.delay, until)
			return
		}
		start.CrashLoop = loop.String()
	}
	p.out.Start = append(p.out.Start, start)
}

// chooseAttempt returns the attempt number for the next instance of a container.
func (p *planner) chooseAttempt(name string) (next uint32) {
	for i := range p.state.Observed.Containers {
		if c := &p.state.Observed.Containers[i]; c.Name == name && c.State != cri.ContainerCreated {
			// A created instance that never started is removed before the start.
			next = max(next, c.Attempt+1)
		}
	}
	return next
}

// isExemptFromBackOff reports whether the container can start without back-off after its newest exited instance.
func (p *planner) isExemptFromBackOff(container *corev1.Container, dead *cri.Container) bool {
	// An init container must run again in each new sandbox.
	return containers.IsInit(&p.state.Pod.Spec, container) && (p.out.Sandbox != nil || dead.SandboxID != p.out.SandboxID)
}

// addBackOff plans that the container waits in CrashLoopBackOff until the given time, after the given delay.
func (p *planner) addBackOff(pod *corev1.Pod, container *corev1.Container, delay time.Duration, until time.Time) {
	p.out.BackOff = append(p.out.BackOff, BackOff{
		Name: container.Name, Until: until, Delay: delay,
		Message: "back-off " + delay.String() + " restarting failed container=" + container.Name +
			" pod=" + pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")",
	})
	if p.out.WakeAt.IsZero() || until.Before(p.out.WakeAt) {
		p.out.WakeAt = until
	}
}

// shouldStart reports whether the container must be started. last is its newest instance, nil if it never ran.
func shouldStart(pod *corev1.Pod, container *corev1.Container, last *cri.Container) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	if last == nil {
		return true
	}
	switch last.State {
	case cri.ContainerRunning:
		return false
	case cri.ContainerExited:
		return podview.ShouldRestart(&pod.Spec, container, last.ExitCode)
	}
	return true
}
