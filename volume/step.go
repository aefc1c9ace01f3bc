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

// lateness is how long a call may go on after its context has ended before it is given up.
const lateness = 5 * time.Second

// step is a step of one volume or device, under way: the call of the plugin, and the state that its result changes.
type step struct {
	volumes *Volumes
	call    pluginCall
	began   time.Time
	cancel  *context.CancelFunc // the field of the entry or the device that holds it

	pod    *podState // nil: the step unstages a device
	entry  *entry    // likewise
	device *device   // of a stage or an unstage; nil: another step
}

// newStep returns the step of an action, which is not started yet. v.mu is held.
func (v *Volumes) newStep(a plan.Action) *step {
	s := &step{volumes: v, began: time.Now()}
	c := &s.call
	c.opts, c.resolver, c.events, c.kind = &v.opts, v.resolver, v.events, a.Step
	if a.Volume != nil {
		s.pod = v.pods[a.Volume.Pod]
		e := s.pod.find(a.Volume.Name)
		s.entry, c.volume, s.cancel = e, v.describe(s.pod, e), &e.cancel
		c.pod, c.volumeName = s.pod.name, c.volume.Name
		c.before = before{recorded: e.recorded, mount: e.mount, claimed: e.claimed, absent: e.plan.Phase == plan.Absent}
		if e.device != nil {
			c.before.size = e.device.size
		}
	}
	if a.Device != nil {
		s.device = v.devices.byName[a.Device.Name]
		s.cancel, c.before.absent = &s.device.cancel, s.device.plan.Phase == plan.Absent
		if s.entry == nil {
			c.volume = describeDevice(v.opts.PluginDir, s.device)
			c.volumeName = c.volume.Spec
		}
	}
	return s
}

// run calls the plugin and records the result. A call that does not return in time is given up.
func (s *step) run(ctx context.Context) {
	limit := s.call.opts.Timeout
	if s.call.kind == plan.Stage && s.call.attaches() {
		limit += s.call.opts.AttachTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan result, 1)
	go func() { done <- s.call.run(ctx) }() // ends with the call of the plugin, at the latest
	var r result
	gaveUp := false
	select {
	case r = <-done:
	case <-ctx.Done():
		late := time.NewTimer(lateness)
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
		canceled = errors.Is(ended, context.Canceled) // nobody wants it any more, or the agent ends
		r.err = &Error{Step: publicStep(s.call.kind), Volume: s.call.volumeName, Err: r.err}
	}
	if hook := s.call.opts.Hooks.Step; hook != nil {
		hook(s.call.volume.Plugin, publicStep(s.call.kind), time.Since(s.began), r.err)
	}
	if r.err != nil && !canceled {
		s.call.events.reportFailure(&s.call, r.err)
	}
	ready := s.record(r, gaveUp) // after the hooks, so that those about a volume come in order
	if gaveUp {
		go func() { // ends with the call
			<-done
			s.returned()
		}()
	}
	s.volumes.signal()
	if ready {
		s.volumes.ready.Call(s.pod.uid)
	}
}

// record applies the result of the step to the state. It reports whether the pod is ready now although its Prepare has returned.
func (s *step) record(r result, gaveUp bool) (ready bool) {
	v := s.volumes
	v.mu.Lock()
	defer v.mu.Unlock()
	*s.cancel = nil
	now := time.Now()
	if s.device != nil {
		s.recordDevice(r, gaveUp, now)
	} else {
		s.recordVolume(r, gaveUp, now)
	}
	if s.pod == nil {
		return false
	}
	ready = s.pod.gaveUp && s.call.kind == plan.SetUp && len(s.pod.pendingErrors(plan.Ready, now)) == 0
	s.pod.gaveUp = s.pod.gaveUp && !ready
	return ready
}

// recordDevice applies the result of a step of a device, for all pods that share it.
func (s *step) recordDevice(r result, gaveUp bool, now time.Time) {
	d := s.device
	if gaveUp {
		d.plan.GiveUp(*failureOf(r.err), now)
	} else {
		d.plan.End(failureOf(r.err), now)
	}
	d.err = r.err
	if r.err == nil && s.call.kind == plan.Unstage && d.plan.Phase != plan.Absent {
		d.err = plan.ErrStuck
	}
	if s.call.kind == plan.Stage && s.volumes.devices.isUnwanted(d) {
		d.err = nil // nobody waits for that any more
	}
	switch {
	case r.err == nil && s.call.kind == plan.Stage:
		d.path = r.path
	case d.plan.Phase == plan.Absent:
		d.path, d.size = "", 0
	}
	for p := range d.holders {
		p.notify()
	}
}

// recordVolume applies the result of a step of a volume.
func (s *step) recordVolume(r result, gaveUp bool, now time.Time) {
	v, e := s.volumes, s.entry
	if gaveUp {
		e.plan.GiveUp(*failureOf(r.err), now)
	} else {
		e.plan.End(failureOf(r.err), now)
	}
	e.err = r.err
	if r.err == nil && s.call.kind == plan.TearDown && e.plan.Phase != plan.Absent {
		e.err = plan.ErrStuck
	}
	if s.call.kind != plan.TearDown && e.plan.Desired == plan.Unmounted {
		e.err = nil // nobody waits for that any more
	}
	if r.claimed != nil {
		e.claimed = r.claimed
	}
	if e.device != nil && r.size > 0 {
		e.device.size = r.size
	}
	if r.err == nil && s.call.kind != plan.TearDown || s.call.kind == plan.SetUp && e.plan.Phase == plan.Ready {
		e.mount = r.mount
	}
	if s.refreshes() && e.plan.Phase == plan.Ready {
		e.plan.RefreshAt = now.Add(backoff.Jitter(v.opts.Refresh, 1, 1.5, v.opts.Rand()))
	}
	if e.device != nil && r.err == nil && s.call.kind == plan.TearDown {
		v.devices.retryUsers(e.device)
	}
	s.pod.notify()
}

// refreshes reports whether the volume is brought up to date from time to time: to show objects, or to grow.
func (s *step) refreshes() bool {
	plugin := s.call.opts.Plugins[s.call.volume.Plugin]
	_, shows := plugin.(Refresher)
	_, grows := plugin.(Expander)
	claimed := s.entry.claimed != nil
	return shows && !claimed || s.entry.mount.Refresh || grows && claimed
}

// returned notes that a call which was given up has returned.
func (s *step) returned() {
	s.volumes.mu.Lock()
	if s.device != nil {
		s.device.plan.Returned(s.call.kind)
	} else {
		s.entry.plan.Returned(s.call.kind)
		s.pod.notify()
	}
	s.volumes.mu.Unlock()
	s.volumes.signal()
}
