// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/volume/plan"
)

// step is one step of one volume, under way.
type step struct {
	v      *Volumes
	pod    *podState
	entry  *entry
	kind   plan.Step
	began  time.Time
	volume Volume
}

// run takes the step and notes what has come of it.
func (s *step) run(ctx context.Context) {
	mount, err := s.take(ctx)
	ended, canceled := context.Cause(ctx), false
	if err != nil {
		if errors.Is(ended, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v: %w", s.v.opts.Timeout, err)
		}
		canceled = errors.Is(ended, context.Canceled) // nobody wants it any more, or the agent ends
		err = &Error{Step: s.kind, Volume: s.volume.Name, Err: err}
	}
	if hook := s.v.opts.Hooks.Step; hook != nil {
		hook(s.volume.Plugin, s.kind, time.Since(s.began), err)
	}
	if err != nil && !canceled {
		s.tell(err)
	}
	ready := s.note(mount, err) // after the hooks, so that those about a volume come in order
	s.v.poke()
	if ready {
		s.v.ready.Call(s.pod.uid)
	}
}

// take calls the plugin.
func (s *step) take(ctx context.Context) (Mount, error) {
	plugin, ok := s.v.opts.Plugins[s.volume.Plugin]
	if !ok {
		return Mount{}, fmt.Errorf("there is no plugin %s", s.volume.Plugin)
	}
	if s.kind == plan.TearDown {
		if err := cleanSubPaths(ctx, s.volume); err != nil {
			return Mount{}, err
		}
		return Mount{}, plugin.TearDown(ctx, s.volume)
	}
	if s.volume.Source == nil || pluginNames()[sourceOf(s.volume.Source)] != s.volume.Plugin {
		return Mount{}, fmt.Errorf("the pod has no such volume of plugin %s", s.volume.Plugin)
	}
	if err := prepareParents(s.volume); err != nil {
		return Mount{}, err
	}
	return plugin.SetUp(ctx, s.volume)
}

// note puts what has come of the step into the state. It reports whether a pod is ready that nobody waits for any more.
func (s *step) note(mount Mount, err error) (ready bool) {
	v, e := s.v, s.entry
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	e.End(err, now)
	e.err, e.cancel = err, nil
	if s.kind != plan.TearDown && e.Desired == plan.Unmounted {
		e.err = nil // nobody waits for that any more
	}
	if err == nil && s.kind != plan.TearDown {
		e.mount = mount
	}
	if _, ok := v.opts.Plugins[e.kind].(Refresher); ok && e.Phase == plan.Ready {
		e.RefreshAt = now.Add(backoff.Jitter(v.opts.Refresh, 1, 1.5, v.opts.Rand()))
	}
	s.pod.notify()
	ready = s.pod.gaveUp && s.kind == plan.SetUp && len(s.pod.left(plan.Ready, now)) == 0
	s.pod.gaveUp = s.pod.gaveUp && !ready
	return ready
}

// tell reports a failure. The cause alone is in the event, in the kubelet's words.
func (s *step) tell(err error) {
	s.v.opts.Logger.Warn("volume", "pod", s.pod.name, "error", err)
	if s.kind == plan.TearDown {
		return
	}
	cause := err
	if e, ok := errors.AsType[*Error](err); ok {
		cause = e.Err
	}
	s.v.event(s.volume.Pod, ReasonFailedMount, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", s.volume.Name, cause))
}
