// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/nowait"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// lateness is how long a call may go on after its context has ended before it is given up.
const lateness = 5 * time.Second

// step is one step of one volume or device, under way.
type step struct {
	v      *Volumes
	kind   plan.Step
	began  time.Time
	volume Volume
	cancel *context.CancelFunc // where that of the step is

	pod    *podState // nil: the step unstages a device
	entry  *entry    // likewise
	device *device   // of a stage or an unstage; nil: another step
	before before
}

// before is what was known before a step began, which it reads without a lock.
type before struct {
	recorded recordedVolume
	mount    Mount
	claimed  *claimed
	size     int64 // of the device
	absent   bool  // nothing is there
}

// result is what has come of a step.
type result struct {
	mount   Mount
	claimed *claimed // as it was seen; nil: it was not
	size    int64    // that a volume has grown to; zero: it has not
	path    string   // where an Attacher has attached it
	err     error
}

// step returns a step that is to begin.
func (v *Volumes) step(a plan.Action) *step {
	s := &step{v: v, kind: a.Step, began: time.Now()}
	if a.Volume != nil {
		s.pod = v.pods[a.Volume.Pod]
		e := s.pod.find(a.Volume.Name)
		s.entry, s.volume, s.cancel = e, v.volume(s.pod, e), &e.cancel
		s.before = before{recorded: e.recorded, mount: e.mount, claimed: e.claimed, absent: e.Phase == plan.Absent}
		if e.device != nil {
			s.before.size = e.device.size
		}
	}
	if a.Device != nil {
		s.device = v.devices[a.Device.Name]
		s.cancel, s.before.absent = &s.device.cancel, s.device.Phase == plan.Absent
		if s.entry == nil {
			s.volume = v.deviceVolume(s.device)
		}
	}
	return s
}

// run takes the step and notes what has come of it. One that does not return in time is given up.
func (s *step) run(ctx context.Context) {
	limit := s.v.opts.Timeout
	if s.kind == plan.Stage && s.attaches() {
		limit += s.v.opts.AttachTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan result, 1)
	go func() { done <- s.take(ctx) }() // ends with the call of the plugin, at the latest
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
		r.err = &Error{Step: publicStep(s.kind), Volume: s.name(), Err: r.err}
	}
	if hook := s.v.opts.Hooks.Step; hook != nil {
		hook(s.volume.Plugin, publicStep(s.kind), time.Since(s.began), r.err)
	}
	if r.err != nil && !canceled {
		s.tell(r.err)
	}
	ready := s.note(r, gaveUp) // after the hooks, so that those about a volume come in order
	if gaveUp {
		go func() { // ends with the call
			<-done
			s.returned()
		}()
	}
	s.v.poke()
	if ready {
		s.v.ready.Call(s.pod.uid)
	}
}

// name returns the name of the volume in its pod, or of the device.
func (s *step) name() string {
	if s.entry == nil {
		return s.volume.Spec
	}
	return s.volume.Name
}

// attaches reports whether the volume has to be attached first.
func (s *step) attaches() bool { return s.volume.Device.Attachable && s.v.opts.Attacher != nil }

// note puts what has come of the step into the state. It reports whether a pod is ready that nobody waits for any more.
func (s *step) note(r result, gaveUp bool) (ready bool) {
	v := s.v
	v.mu.Lock()
	defer v.mu.Unlock()
	*s.cancel = nil
	now := time.Now()
	if s.device != nil {
		s.noteDevice(r, gaveUp, now)
	} else {
		s.noteVolume(r, gaveUp, now)
	}
	if s.pod == nil {
		return false
	}
	ready = s.pod.gaveUp && s.kind == plan.SetUp && len(s.pod.left(plan.Ready, now)) == 0
	s.pod.gaveUp = s.pod.gaveUp && !ready
	return ready
}

// noteDevice notes the end of a step of a device, for all pods that share it.
func (s *step) noteDevice(r result, gaveUp bool, now time.Time) {
	d := s.device
	if gaveUp {
		d.GiveUp(*failureOf(r.err), now)
	} else {
		d.End(failureOf(r.err), now)
	}
	d.err = r.err
	if r.err == nil && s.kind == plan.Unstage && d.Phase != plan.Absent {
		d.err = plan.ErrStuck
	}
	if s.kind == plan.Stage && s.v.unwanted(d) {
		d.err = nil // nobody waits for that any more
	}
	switch {
	case r.err == nil && s.kind == plan.Stage:
		d.path = r.path
	case d.Phase == plan.Absent:
		d.path, d.size = "", 0
	}
	for p := range d.holders {
		p.notify()
	}
}

// noteVolume notes the end of a step of a volume.
func (s *step) noteVolume(r result, gaveUp bool, now time.Time) {
	v, e := s.v, s.entry
	if gaveUp {
		e.GiveUp(*failureOf(r.err), now)
	} else {
		e.End(failureOf(r.err), now)
	}
	e.err = r.err
	if r.err == nil && s.kind == plan.TearDown && e.Phase != plan.Absent {
		e.err = plan.ErrStuck
	}
	if s.kind != plan.TearDown && e.Desired == plan.Unmounted {
		e.err = nil // nobody waits for that any more
	}
	if r.claimed != nil {
		e.claimed = r.claimed
	}
	if e.device != nil && r.size > 0 {
		e.device.size = r.size
	}
	if r.err == nil && s.kind != plan.TearDown || s.kind == plan.SetUp && e.Phase == plan.Ready {
		e.mount = r.mount
	}
	if s.refreshes() && e.Phase == plan.Ready {
		e.RefreshAt = now.Add(backoff.Jitter(v.opts.Refresh, 1, 1.5, v.opts.Rand()))
	}
	if e.device != nil && r.err == nil && s.kind == plan.TearDown {
		v.retryShared(e.device)
	}
	s.pod.notify()
}

// retryShared lets those be tried again at once that wait for a device which is for one pod at a time.
func (v *Volumes) retryShared(d *device) {
	for _, vol := range v.state.Volumes {
		if vol.Device == &d.Device && vol.Failed == plan.SetUp {
			vol.Retry()
		}
	}
}

// refreshes reports whether the volume is brought up to date from time to time: to show objects, or to grow.
func (s *step) refreshes() bool {
	plugin := s.v.opts.Plugins[s.volume.Plugin]
	_, shows := plugin.(Refresher)
	_, grows := plugin.(Expander)
	claimed := s.entry.claimed != nil
	return shows && !claimed || s.entry.mount.Refresh || grows && claimed
}

// returned notes that a call which was given up has returned.
func (s *step) returned() {
	s.v.mu.Lock()
	if s.device != nil {
		s.device.Returned(s.kind)
	} else {
		s.entry.Returned(s.kind)
		s.pod.notify()
	}
	s.v.mu.Unlock()
	s.v.poke()
}

// tell reports a failure. The cause alone is in the event, in the kubelet's words.
func (s *step) tell(err error) {
	pod := ""
	if s.pod != nil {
		pod = s.pod.name
	}
	s.v.opts.Logger.Warn("volume", "pod", pod, "error", err)
	if _, usable := errors.AsType[*StaleError](err); usable || s.kind == plan.TearDown || s.kind == plan.Unstage {
		return
	}
	cause := err
	if e, ok := errors.AsType[*Error](err); ok {
		cause = e.Err
	}
	attach, attaching := errors.AsType[*attachError](cause)
	reason, verb, what := ReasonFailedMount, "MountVolume", "SetUp"
	if s.volume.Block {
		reason, verb, what = ReasonFailedMapVolume, "MapVolume", "MapPodDevice"
	}
	switch {
	case attaching:
		what, cause = "WaitForAttach", attach.Err
	case errors.Is(cause, claim.ErrAffinity):
		what = "NodeAffinity check"
	case s.kind == plan.Stage && s.volume.Block:
		what = "SetUpDevice"
	case s.kind == plan.Stage:
		what = "MountDevice"
	}
	s.v.event(s.volume.Pod, corev1.EventTypeWarning, reason, fmt.Sprintf("%s.%s failed for volume %q : %v", verb, what, s.volume.Spec, cause))
}
