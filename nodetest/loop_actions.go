// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/lifecycle/executor"
	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podview"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/plan"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// execution executes the actions of a sync, in the order of the fields of plan.Actions. Each step starts the following step when its runtime calls
// have returned.
type execution struct {
	pod      *loopPod
	actions  *plan.Actions
	observed cri.Pod
	sandbox  *cri.Sandbox
	config   cri.SandboxConfig
	errs     []error
}

// executeActions executes the actions that plan.Decide has returned for the observed pod.
func (p *loopPod) executeActions(observed cri.Pod, actions *plan.Actions) {
	p.wakeAt(time.Time{})
	if actions.Sandbox != nil {
		actions.Sandbox.PodStarted = p.status.StartTime.Time
	}
	p.busy, p.stopping = true, actions.PodTerminal
	p.starting, p.replaced = len(actions.Start) > 0, actions.ReplacedContainers(observed)
	x := &execution{pod: p, actions: actions, observed: observed}
	x.stopContainers(func() {
		x.stopSandboxes(actions.StopSandboxes, func() {
			x.removeContainers(actions.RemoveContainers, func() {
				x.startPod(func() {
					x.removeSandboxes(actions.RemoveSandboxes, x.finish)
				})
			})
		})
	})
}

// finish ends the sync and requests a list call. It schedules the next sync at the time in the plan, or after a back-off if
// an action failed.
func (x *execution) finish() {
	p := x.pod
	p.busy, p.stopping, p.lastSync = false, false, p.loop.clock()
	p.relist()
	if len(x.errs) == 0 {
		p.failures = 0
		p.awaiting = p.awaiting || p.deleted
		p.wakeAt(p.loop.fromWallClock(x.actions.WakeAt))
		return
	}
	p.starting = false
	p.failures++
	p.republishStatus()
	wait := backoff.Jitter(backoff.Policy{First: time.Second, Max: 10 * time.Second}.After(p.failures), 1, 1.5, 0.5)
	p.wakeAt(sleep.Earlier(p.loop.fromWallClock(x.actions.WakeAt), p.lastSync.Add(wait)))
}

// ifCurrent returns a function that calls f. The returned function does nothing if the current sync was canceled in the
// meantime.
func (p *loopPod) ifCurrent(f func()) func() {
	epoch := p.epoch
	return func() {
		if p.epoch == epoch {
			f()
		}
	}
}

// stopContainers stops the containers in Actions.Kill concurrently, and then calls next. The stop of a container waits for
// the containers in its WaitFor, but at most for its grace period.
func (x *execution) stopContainers(next func()) {
	pending := len(x.actions.Kill)
	if pending == 0 {
		next()
		return
	}
	ended := map[string]bool{}
	var waiting []func()
	for i := range x.actions.Kill {
		k := &x.actions.Kill[i]
		x.recordEvent(podevents.ReasonKillingContainer, k.Name, k.ID, k.EventMessage())
		began, started := x.pod.loop.clock(), false
		begin := func(force bool) {
			blocked := slices.ContainsFunc(k.WaitFor, func(name string) bool { return x.kills(name) && !ended[name] })
			if started || blocked && !force {
				return
			}
			started = true
			grace := hook.Budget(k.Grace, 0, x.pod.loop.clock().Sub(began))
			x.pod.callRuntime("StopContainer", k.ID, func(done func(error)) { x.pod.stopContainer(k.ID, grace, done) }, func(err error) {
				x.addError(err)
				ended[k.Name] = true
				for _, f := range waiting {
					f()
				}
				if pending--; pending == 0 {
					next()
				}
			})
		}
		waiting = append(waiting, func() { begin(false) })
		if begin(false); !started {
			x.pod.loop.queue.after(k.Grace, x.pod.ifCurrent(func() { begin(true) }))
		}
	}
}

// kills reports whether the actions of the sync stop the named container.
func (x *execution) kills(name string) bool {
	return slices.ContainsFunc(x.actions.Kill, func(k plan.Kill) bool { return k.Name == name })
}

// addError stores the error of an action; nil is ignored.
func (x *execution) addError(err error) {
	if err != nil {
		x.errs = append(x.errs, err)
	}
}

// recordEvent records an event of a container.
func (x *execution) recordEvent(reason, container, id, message string) {
	x.pod.loop.recordEvent(x.pod.id, podevents.Event{Type: corev1.EventTypeNormal, Reason: reason, Message: message, Container: container, ContainerID: id})
}

// recordWarning records a warning event of the pod.
func (x *execution) recordWarning(reason, format string, err error) {
	x.pod.reporter.RecordWarning(reason, executor.Subject{}, format, err)
}

// stopSandboxes stops the sandboxes with these IDs in order, and then calls next. If an action has failed before, it ends the sync instead.
func (x *execution) stopSandboxes(ids []string, next func()) {
	if len(x.errs) > 0 {
		x.recordWarning(podevents.ReasonFailedToKillPod, "error killing pod: %v", errors.Join(x.errs...))
		x.finish()
		return
	}
	if len(ids) == 0 {
		next()
		return
	}
	stop := func() error { x.pod.stopSandbox(ids[0]); return nil }
	x.pod.callNow("StopPodSandbox", ids[0], stop, func(err error) {
		x.addError(err)
		x.pod.stopped[ids[0]] = err == nil
		x.stopSandboxes(ids[1:], next)
	})
}

// removeContainers removes the containers with these IDs in order, and then calls next.
func (x *execution) removeContainers(ids []string, next func()) {
	if len(ids) == 0 {
		next()
		return
	}
	remove := func() error { x.pod.removeContainer(ids[0]); return nil }
	x.pod.callNow("RemoveContainer", ids[0], remove, func(err error) {
		x.addError(err)
		x.removeContainers(ids[1:], next)
	})
}

// removeSandboxes removes the sandboxes with these IDs in order, and then calls next.
func (x *execution) removeSandboxes(ids []string, next func()) {
	if len(ids) == 0 {
		next()
		return
	}
	remove := func() error { x.pod.removeSandbox(ids[0]); return nil }
	x.pod.callNow("RemovePodSandbox", ids[0], remove, func(err error) {
		x.addError(err)
		x.removeSandboxes(ids[1:], next)
	})
}

// startPod runs the planned sandbox, if there is one, and starts the planned containers. Then it calls next. If nothing is
// planned, it only calls next.
func (x *execution) startPod(next func()) {
	p, a := x.pod, x.actions
	if a.Sandbox == nil && len(a.Start) == 0 {
		next()
		return
	}
	attempt := uint32(0)
	if a.Sandbox != nil {
		attempt = a.Sandbox.Attempt
	} else if sb := x.observed.NewestSandbox(); sb != nil {
		attempt = sb.Attempt
	}
	var err error
	if x.config, err = podspec.Sandbox(p.pod, attempt, p.loop.setup.spec); err != nil {
		x.recordWarning(podevents.ReasonFailedCreatePodSandBox, "Failed to create pod sandbox: %v", err)
		x.addError(err)
		next()
		return
	}
	ready := p.loop.checkNetwork()
	p.ensureCgroup()
	if a.Sandbox == nil {
		x.sandbox = p.sandboxes[slices.IndexFunc(p.sandboxes, func(s *cri.Sandbox) bool { return s.ID == a.SandboxID })]
		x.startContainers(a.Start, next)
		return
	}
	p.loop.queue.schedule(ready, p.ifCurrent(func() { x.runSandbox(next) }))
}

// statusValid is how long a status of the runtime is valid, as in package lifecycle.
const statusValid = 5 * time.Second

// checkNetwork returns the time at which the agent has read that the network is ready: now or earlier if the last status of the runtime is valid,
// otherwise after a new Status call.
func (l *Loop) checkNetwork() time.Time {
	if l.queue.now.Sub(l.statusRead) >= statusValid {
		l.statusRead = l.queue.now.Add(l.options.Latency("Status", ""))
	}
	return l.statusRead
}

// runSandbox runs the planned sandbox, starts the planned containers and then calls next. If the sandbox fails, it starts no
// container.
func (x *execution) runSandbox(next func()) {
	p := x.pod
	if x.config.Attempt > 0 {
		x.recordEvent(podevents.ReasonSandboxChanged, "", "", "Pod sandbox changed, it will be killed and re-created.")
	}
	x.config.Annotations = maps.Clone(x.config.Annotations)
	if x.config.Annotations == nil {
		x.config.Annotations = map[string]string{}
	}
	x.config.Annotations[podview.AnnotationNetwork] = podview.NetworkModeOf(p.pod).String()
	x.config.Annotations[podstatus.AnnotationStarted] = x.actions.Sandbox.PodStarted.UTC().Format(time.RFC3339)
	fail := func(err error) {
		x.recordWarning(podevents.ReasonFailedCreatePodSandBox, "Failed to create pod sandbox: %v", err)
		x.addError(err)
		next()
	}
	run := func() error { x.sandbox = p.runSandbox(&x.config); return nil }
	p.callNow("RunPodSandbox", p.id.UID, run, func(err error) {
		if err != nil {
			fail(err)
			return
		}
		p.callNow("PodSandboxStatus", x.sandbox.ID, func() error { return nil }, func(err error) {
			if err != nil {
				fail(err)
				return
			}
			x.startContainers(x.actions.Start, next)
		})
	})
}

// ensureCgroup creates the cgroup of the pod with its limits.
func (p *loopPod) ensureCgroup() {
	p.loop.kernel.advance()
	_ = p.loop.kernel.machine.Cgroups().Apply(p.loop.ctx, p.cgroup, podtree.ForPod(p.pod, p.loop.setup.tree.Node)) // fails only if ctx has ended
	p.loop.requestClasses()
}

// startContainers starts the containers in list in order, and then calls next. After a failed start it continues with the following container.
func (x *execution) startContainers(list []plan.Start, next func()) {
	if len(list) == 0 {
		next()
		return
	}
	s := &list[0]
	x.startContainer(s, func(id string, err error) {
		x.setWaiting(s.Container.Name, err)
		if err != nil {
			x.addError(fmt.Errorf("start container %s: %w", s.Container.Name, err))
			x.recordEvent(podevents.ReasonFailedToStartContainer, s.Container.Name, id, fmt.Sprintf("Error: %v", err))
		}
		x.startContainers(list[1:], next)
	})
}

// setWaiting sets the waiting reason of the named container from err, the error of its start. For nil, or an error without a
// reason, it removes the waiting reason.
func (x *execution) setWaiting(container string, err error) {
	if e, ok := errors.AsType[*podstatus.StartError](err); ok {
		x.pod.waiting.SetReason(container, podstatus.Waiting{Reason: e.Reason, Message: e.Err.Error()})
		return
	}
	reasons := x.pod.waiting.Get()
	delete(reasons, container)
	x.pod.waiting.Replace(reasons)
}

// startContainer creates the planned container, unless it exists already, and starts it. It calls then with the ID of the container and the error of
// the start. It pulls no image: each image counts as present.
func (x *execution) startContainer(s *plan.Start, then func(id string, err error)) {
	p, name := x.pod, s.Container.Name
	if s.CreatedID != "" {
		x.runContainer(s.CreatedID, name, then)
		return
	}
	p.callNow("ImageStatus", s.Container.Image, func() error { return nil }, func(err error) {
		if err != nil {
			then("", &podstatus.StartError{Reason: "ImageInspectError", Err: err})
			return
		}
		x.recordEvent(podevents.ReasonPulledImage, name, "", fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", s.Container.Image))
		config, err := podspec.Container(p.pod, s.Container, podspec.Launch{
			Attempt: s.Attempt, PodIPs: x.sandbox.IPs, Annotations: s.Annotations(), TargetID: s.TargetID,
		}, p.loop.setup.spec)
		if err != nil {
			then("", &podstatus.StartError{Reason: podstatus.ReasonCreateConfigError, Err: err})
			return
		}
		var id string
		create := func() error { id = p.createContainer(x.sandbox.ID, &config).ID; return nil }
		p.callNow("CreateContainer", x.sandbox.ID, create, func(err error) {
			if err != nil {
				then("", &podstatus.StartError{Reason: podstatus.ReasonCreateError, Err: err})
				return
			}
			x.recordEvent(podevents.ReasonCreatedContainer, name, id, "Container created")
			x.runContainer(id, name, then)
		})
	})
}

// runContainer starts the created container with this ID. It calls then with the ID and the error of the start.
func (x *execution) runContainer(id, name string, then func(id string, err error)) {
	start := func() error {
		c := x.pod.findContainer(id)
		if c == nil {
			return cri.ErrNotFound
		}
		return x.pod.startContainer(c)
	}
	x.pod.callNow("StartContainer", id, start, func(err error) {
		if err != nil {
			then(id, &podstatus.StartError{Reason: podstatus.ReasonRunError, Err: err})
			return
		}
		x.recordEvent(podevents.ReasonStartedContainer, name, id, "Container started")
		then(id, nil)
	})
}
