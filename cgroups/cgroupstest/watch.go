// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// watcher is a running call of [Tree.Watch] with its triggers.
type watcher struct {
	node    *node
	arms    []armedTrigger
	removed bool          // the cgroup was removed
	fired   chan struct{} // capacity one
}

// armedTrigger is one trigger of a watcher. total is the stall time at which it fired last.
type armedTrigger struct {
	trigger cgroups.Trigger
	total   time.Duration
	fired   bool
}

// Watch calls fn when memory.events of p have changed, and when [Tree.SetPressure] has added the stall time of a trigger. It
// ignores Trigger.Window. It returns an error in V1, and when p is removed.
func (t *Tree) Watch(ctx context.Context, p cgroups.Path, triggers []cgroups.Trigger, fn func(cgroups.Trigger)) error {
	w := &watcher{fired: make(chan struct{}, 1)}
	if err := t.runOperation(ctx, "watch", p, func() error { return t.addWatcher(w, p, triggers) }); err != nil {
		return err
	}
	defer t.removeWatcher(w)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.fired:
		}
		fired, gone := t.takeFired(w)
		for _, trigger := range fired {
			fn(trigger)
		}
		if gone {
			return &cgroups.Error{Op: "watch", Path: p, Err: fs.ErrNotExist}
		}
	}
}

// addWatcher validates triggers and registers watch for events of cgroup p.
func (t *Tree) addWatcher(watch *watcher, p cgroups.Path, triggers []cgroups.Trigger) error {
	n, err := t.findNode(p)
	if err != nil {
		return err
	}
	if len(triggers) == 0 {
		return errors.New("no trigger to wait for")
	}
	for _, trigger := range triggers {
		if err := trigger.Validate(); err != nil {
			return err
		}
		if t.opts.Mode == V1 {
			return &fileError{trigger.File, fmt.Errorf("%w: there is no such file", errors.ErrUnsupported)}
		}
		watch.arms = append(watch.arms, armedTrigger{trigger: trigger, total: n.stallTime(trigger)})
	}
	watch.node = n
	t.watchers = append(t.watchers, watch)
	return nil
}

func (t *Tree) removeWatcher(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers = slices.DeleteFunc(t.watchers, func(o *watcher) bool { return o == w })
}

// takeFired returns the triggers that have fired since the last call. gone reports whether the cgroup was removed.
func (t *Tree) takeFired(watch *watcher) (fired []cgroups.Trigger, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range watch.arms {
		if watch.arms[i].fired {
			fired = append(fired, watch.arms[i].trigger)
			watch.arms[i].fired = false
		}
	}
	return fired, watch.removed
}

// stallTime returns the total stall time of n for the resource and the kind, some or full, of trigger.
func (n *node) stallTime(trigger cgroups.Trigger) time.Duration {
	resource, _ := strings.CutSuffix(trigger.File, ".pressure")
	i := slices.Index([]string{"cpu", "memory", "io"}, resource)
	if i < 0 {
		return 0
	}
	p := n.pressureOf(i)
	if trigger.Full {
		return p.Full.Total
	}
	return p.Some.Total
}

// firePressure fires each pressure trigger whose stall time has grown enough since it last fired.
func (t *Tree) firePressure() {
	for _, w := range t.watchers {
		for i := range w.arms {
			a := &w.arms[i]
			if total := w.node.stallTime(a.trigger); a.trigger.Stall > 0 && total >= a.total+a.trigger.Stall {
				a.total = total
				w.fireTrigger(i)
			}
		}
	}
}

// fireMemoryEvents fires the memory.events triggers of cgroup.
func (t *Tree) fireMemoryEvents(cgroup *node) {
	for _, w := range t.watchers {
		for i := range w.arms {
			if w.node == cgroup && w.arms[i].trigger.File == "memory.events" {
				w.fireTrigger(i)
			}
		}
	}
}

// endWatchers ends the watches of cgroup and its descendants, because cgroup is removed.
func (t *Tree) endWatchers(cgroup *node) {
	for _, w := range t.watchers {
		for c := range w.node.selfAndAncestors() {
			if c == cgroup {
				w.removed = true
				w.wake()
			}
		}
	}
}

func (w *watcher) fireTrigger(i int) {
	w.arms[i].fired = true
	w.wake()
}

func (w *watcher) wake() {
	sleep.Wake(w.fired)
}
