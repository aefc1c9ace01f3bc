// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/probe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// planContainers decides for each container of a pod with a sound sandbox.
func (a *Actions) planContainers(s *State) {
	a.killFormerRounds(s)
	a.planEphemeral(s)
	switch a.planInit(s) {
	case initFailed:
		a.end(s)
		return
	case initPending:
		a.killStrays(s)
		return
	}
	a.ResizePod = s.ResizePod
	kept := 0
	before := len(a.Start) + len(a.Waiting)
	for i := range s.Pod.Spec.Containers {
		if a.planContainer(s, &s.Pod.Spec.Containers[i]) {
			kept++
		}
	}
	if kept == 0 && len(a.Start)+len(a.Waiting) == before {
		a.end(s) // sidecars alone keep no pod alive
		return
	}
	a.killStrays(s)
}

// planContainer decides for one regular container, and tells whether it runs on as it is.
func (a *Actions) planContainer(s *State, c *corev1.Container) (kept bool) {
	last := s.newest(c.Name)
	switch {
	case last == nil || last.State != cri.ContainerRunning:
		if !shouldStart(s.Pod, c, last) {
			return false
		}
		if last != nil && last.State == cri.ContainerUnknown {
			// It may run after all, and two of one name must not.
			a.kill(s, last, "the runtime lost track of it")
		}
		a.start(s, c)
	case changed(c, last):
		a.kill(s, last, "its definition changed")
		a.start(s, c)
	default:
		return a.planRunning(s, c, last)
	}
	return false
}

// planRunning decides for a running container that is the one that the spec asks for.
func (a *Actions) planRunning(s *State, c *corev1.Container, live *cri.Container) (kept bool) {
	if failed, must := s.failedProbe(c, live); must {
		a.killForProbe(s, live, failed)
		if failed.Restart {
			a.start(s, c)
		}
		return false
	}
	if !a.planResize(s, live) {
		a.start(s, c)
		return false
	}
	if slices.Contains(s.Unhooked, live.ID) {
		a.hook(s, c, live)
	}
	return true
}

// hook plans the postStart hook of a container that runs.
func (a *Actions) hook(s *State, c *corev1.Container, live *cri.Container) {
	a.Start = append(a.Start, Start{Container: c, Attempt: live.Attempt, CreatedID: live.ID, Running: true, Round: s.round})
}

// planEphemeral starts ephemeral containers that never were. They run once, however far the pod has come, but not before
// the container whose processes they are to see.
func (a *Actions) planEphemeral(s *State) {
	for i := range s.Pod.Spec.EphemeralContainers {
		e := &s.Pod.Spec.EphemeralContainers[i]
		c := (*corev1.Container)(&e.EphemeralContainerCommon)
		last := newestContainer(s.Observed.Containers, c.Name, nil)
		if last != nil && last.State != cri.ContainerCreated {
			continue
		}
		target := s.newest(e.TargetContainerName)
		if target == nil && e.TargetContainerName != "" {
			continue
		}
		a.start(s, c)
		if target != nil {
			a.Start[len(a.Start)-1].Target = target.ID
		}
	}
}

// changed tells whether a running container is no longer the one that the spec asks for.
func changed(want *corev1.Container, have *cri.Container) bool {
	hash, ok := have.Annotations[podspec.AnnotationHash]
	return ok && !podspec.HasHash(want, hash)
}

// failedProbe tells whether a running container has to be killed for what its probes say.
func (s *State) failedProbe(c *corev1.Container, live *cri.Container) (podprobe.Kill, bool) {
	if !s.says(c.LivenessProbe, live, probe.Liveness, probe.Failure) && !s.says(c.StartupProbe, live, probe.Startup, probe.Failure) {
		return podprobe.Kill{}, false
	}
	st := corev1.ContainerStatus{Name: c.Name, ContainerID: live.ID}
	st.State.Running = &corev1.ContainerStateRunning{}
	return podprobe.MustKill(s.Pod, c, &st, s.Probes)
}

// says tells whether a container has a probe, and that has come to an outcome. It allocates nothing.
func (s *State) says(p *corev1.Probe, live *cri.Container, kind probe.Kind, outcome probe.Outcome) bool {
	if p == nil || s.Probes == nil {
		return false
	}
	v, ok := s.Probes(probe.Key{PodUID: string(s.Pod.UID), Container: live.Name, Kind: kind})
	return ok && v.ContainerID == live.ID && v.Outcome == outcome
}

// killStrays stops containers that the spec does not name any more, older lives of those it does, and what runs in another
// sandbox than the one in use.
func (a *Actions) killStrays(s *State) {
	for i := range s.Observed.Containers {
		c := &s.Observed.Containers[i]
		switch {
		case c.State != cri.ContainerRunning && c.State != cri.ContainerUnknown || a.kills(c.ID):
		case containerNamed(&s.Pod.Spec, c.Name) == nil:
			a.kill(s, c, "the pod has no such container")
		case newestContainer(s.Observed.Containers, c.Name, nil) != c:
			a.kill(s, c, "a newer container of the same name exists")
		case c.SandboxID != a.SandboxID:
			a.kill(s, c, "it runs in a former sandbox")
		}
	}
}

// kills tells whether a container is among those to stop.
func (a *Actions) kills(id string) bool {
	return slices.ContainsFunc(a.Kill, func(k Kill) bool { return k.ID == id })
}

func (a *Actions) kill(s *State, c *cri.Container, reason string) {
	a.Kill = append(a.Kill, Kill{ID: c.ID, Name: c.Name, Grace: Grace(s.Pod), Reason: reason, PreStop: preStop(s.Pod, c)})
}

func (a *Actions) killForProbe(s *State, c *cri.Container, failed podprobe.Kill) {
	k := Kill{ID: c.ID, Name: c.Name, Grace: failed.Grace, Reason: failed.Message, PreStop: preStop(s.Pod, c)}
	if spec := containerNamed(&s.Pod.Spec, c.Name); spec.Lifecycle != nil && hasOwnGrace(spec, failed.Kind) {
		k.PreStop = spec.Lifecycle.PreStop // also where the pod itself has no time for one
	}
	a.Kill = append(a.Kill, k)
}

// hasOwnGrace tells whether a probe of a container has a grace period of its own.
func hasOwnGrace(c *corev1.Container, kind probe.Kind) bool {
	p := c.LivenessProbe
	if kind == probe.Startup {
		p = c.StartupProbe
	}
	return p.TerminationGracePeriodSeconds != nil
}

// start plans the next life of a container, now or when its back-off is over.
func (a *Actions) start(s *State, c *corev1.Container) {
	start := Start{Container: c, Round: s.round}
	if last := newestContainer(s.Observed.Containers, c.Name, nil); last != nil {
		start.Attempt = last.Attempt + 1
		if last.State == cri.ContainerCreated {
			// It never ran, so what starts now is not a restart: this one, or another in its place.
			start.Attempt = last.Attempt
			if a.Sandbox == nil && last.SandboxID == a.SandboxID && roundOf(last) == s.round &&
				!changed(c, last) && s.resizeOf(last) == nil {
				start.CreatedID = last.ID
				a.Start = append(a.Start, start)
				return
			}
		}
	}
	dead := newestContainer(s.Observed.Containers, c.Name, exited)
	switch {
	case dead == nil || a.excused(s, c, dead):
	case endedByOthers(s, c, dead):
		start.CrashLoop = dead.Annotations[AnnotationCrashLoop]
	default:
		loop, until := parseCrashLoop(dead.Annotations[AnnotationCrashLoop]).next(crashLoopKey(s.Pod, c), dead, s.Now, s.MaxRestartPeriod)
		if !until.IsZero() {
			a.wait(s.Pod, c, loop.delay, until)
			return
		}
		start.CrashLoop = loop.String()
	}
	a.Start = append(a.Start, start)
}

// excused tells whether an earlier life does not count for the back-off: an init container runs once in each sandbox.
func (a *Actions) excused(s *State, c *corev1.Container, dead *cri.Container) bool {
	return isInit(&s.Pod.Spec, c) && (a.Sandbox != nil || dead.SandboxID != a.SandboxID)
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
