// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/nowait"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// callGracePeriod is the time that a plugin has to return after the context of its call has ended. Then runStep gives up the
// call.
const callGracePeriod = 5 * time.Second

// step is one step of a volume or device, such as a set-up. It has the plugin call, and the state that the result of the call
// changes.
type step struct {
	volumes *Volumes
	call    pluginCall
	started time.Time
	cancel  *context.CancelFunc // points to the cancel field of entry or device

	pod    *podState // nil if the step unstages a device
	entry  *entry    // nil if the step unstages a device
	device *device   // set only if the step stages or unstages a device
}

// newStep returns the step for an action, such as a set-up or an unstage. It does not start the step. The caller holds v.mu.
func (v *Volumes) newStep(action plan.Action) *step {
	s := &step{volumes: v, started: time.Now()}
	c := &s.call
	c.opts, c.resolver, c.events, c.kind = &v.opts, v.resolver, v.events, action.Step
	if action.Volume != nil {
		s.pod = v.pods[action.Volume.Pod]
		e := s.pod.findVolume(action.Volume.Name)
		s.entry, c.volume, s.cancel = e, v.describeVolume(s.pod, e), &e.cancel
		c.pod, c.volumeName = s.pod.name, c.volume.Name
		c.prior = priorState{recorded: e.recorded, mount: e.mount, claimed: e.claimed, absent: e.plan.Phase == plan.Absent}
		if e.device != nil {
			c.prior.size = e.device.size
		}
	}
	if action.Device != nil {
		s.device = v.devices.byName[action.Device.Name]
		s.cancel, c.prior.absent = &s.device.cancel, s.device.plan.Phase == plan.Absent
		if s.entry == nil {
			c.volume = describeDevice(v.opts.PluginDir, s.device)
			c.volumeName = c.volume.SpecName
		}
	}
	return s
}

// runStep calls the plugin and records the result. It does not wait for a plugin that hangs after ctx or the step's time has
// ended.
func (s *step) runStep(ctx context.Context) {
	limit := s.call.opts.StepTimeout
	if s.call.kind == plan.Stage && s.call.mustAttach() {
		limit += s.call.opts.AttachTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan result, 1)
	go func() { done <- s.call.callPlugin(ctx) }() // the goroutine ends when the plugin returns
	var r result
	gaveUp := false
	select {
	case r = <-done:
	case <-ctx.Done():
		late := time.NewTimer(callGracePeriod)
		defer late.Stop()
		select {
		case r = <-done:
		case <-late.C:
			gaveUp = true
			r.err = fmt.Errorf("%w: the plugin does not return: %w", nowait.ErrNoAnswer, ctx.Err())
		}
	}
	ended, canceled := context.Cause(ctx), false
	if r.err != nil {
		if errors.Is(ended, context.DeadlineExceeded) {
			r.err = fmt.Errorf("no answer within %v: %w", limit, r.err)
		}
		canceled = errors.Is(ended, context.Canceled) // the step is no longer needed, or Run is stopping
		r.err = &Error{Step: publicStep(s.call.kind), Volume: s.call.volumeName, Err: r.err}
	}
	if hook := s.call.opts.Hooks.StepCompleted; hook != nil {
		hook(s.call.volume.Plugin, publicStep(s.call.kind), time.Since(s.started), r.err)
	}
	if r.err != nil && !canceled {
		s.call.events.reportFailure(&s.call, r.err)
	}
	ready := s.recordResult(r, gaveUp) // after the hooks, so that the hooks about one volume are called in order
	if gaveUp {
		go func() { // ends when the plugin returns
			<-done
			s.callReturned()
		}()
	}
	s.volumes.signal()
	if ready {
		s.volumes.ready.Call(s.pod.uid)
	}
}

// recordResult applies the result of a step to the volume or device, also if it gave up the call. ready reports that Prepare can
// be repeated.
func (s *step) recordResult(res result, gaveUp bool) (ready bool) {
	v := s.volumes
	v.mu.Lock()
	defer v.mu.Unlock()
	*s.cancel = nil
	now := time.Now()
	if s.device != nil {
		s.recordDevice(res, gaveUp, now)
	} else {
		s.recordVolume(res, gaveUp, now)
	}
	if s.pod == nil {
		return false
	}
	// This step has set up the last missing volume.
	ready = s.pod.prepareFailed && s.call.kind == plan.SetUp && len(s.pod.pendingErrors(plan.Ready, now)) == 0
	s.pod.prepareFailed = s.pod.prepareFailed && !ready
	return ready
}

// recordDevice applies the result of a stage or unstage to the device, also if the call was given up. The caller holds
// Volumes.mu.
func (s *step) recordDevice(res result, gaveUp bool, now time.Time) {
	d := s.device
	if gaveUp {
		d.plan.GiveUp(*failureOf(res.err), now)
	} else {
		d.plan.Complete(failureOf(res.err), now)
	}
	d.err = res.err
	if res.err == nil && s.call.kind == plan.Unstage && d.plan.Phase != plan.Absent {
		d.err = plan.ErrHungCall
	}
	if s.call.kind == plan.Stage && s.volumes.devices.isUnneeded(d) {
		d.err = nil // no pod waits for the device any more
	}
	switch {
	case res.err == nil && s.call.kind == plan.Stage:
		d.path = res.path
	case d.plan.Phase == plan.Absent:
		d.path, d.size = "", 0
	}
	for p := range d.users {
		p.notifyWaiters()
	}
}

// recordVolume applies the result of a set-up, update or teardown to the volume, also if the call was given up. The caller holds
// Volumes.mu.
func (s *step) recordVolume(res result, gaveUp bool, now time.Time) {
	v, e := s.volumes, s.entry
	if gaveUp {
		e.plan.GiveUp(*failureOf(res.err), now)
	} else {
		e.plan.Complete(failureOf(res.err), now)
	}
	e.err = res.err
	if res.err == nil && s.call.kind == plan.TearDown && e.plan.Phase != plan.Absent {
		e.err = plan.ErrHungCall
	}
	if s.call.kind != plan.TearDown && e.plan.Desired == plan.Unmounted {
		e.err = nil // the pod is being released and does not wait for this step
	}
	if res.claimed != nil {
		e.claimed = res.claimed
	}
	if e.device != nil && res.size > 0 {
		e.device.size = res.size
	}
	if res.err == nil && s.call.kind != plan.TearDown || s.call.kind == plan.SetUp && e.plan.Phase == plan.Ready {
		e.mount = res.mount
	}
	if s.needsRefresh() && e.plan.Phase == plan.Ready {
		e.plan.RefreshAt = now.Add(backoff.Jitter(v.opts.RefreshPeriod, 1, 1.5, v.opts.Rand()))
	}
	if e.device != nil && res.err == nil && s.call.kind == plan.TearDown {
		v.devices.retryUsers(e.device)
	}
	s.pod.notifyWaiters()
}

// needsRefresh reports whether Run must update the volume periodically: it shows objects, can be expanded, or has requested
// updates.
func (s *step) needsRefresh() bool {
	plugin := s.call.opts.Plugins[s.call.volume.Plugin]
	_, shows := plugin.(Refresher)
	_, grows := plugin.(Expander)
	claimed := s.entry.claimed != nil
	return shows && !claimed || s.entry.mount.UpdatePeriodically || grows && claimed
}

// callReturned records that a hung plugin call has returned, so that Run can start the next step.
func (s *step) callReturned() {
	s.volumes.mu.Lock()
	if s.device != nil {
		s.device.plan.HungCallReturned(s.call.kind)
	} else {
		s.entry.plan.HungCallReturned(s.call.kind)
		s.pod.notifyWaiters()
	}
	s.volumes.mu.Unlock()
	s.volumes.signal()
}
