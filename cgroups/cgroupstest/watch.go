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

// watcher is a call of Watch that has not returned.
type watcher struct {
	node  *node
	arms  []arm
	gone  bool          // the cgroup was removed
	fired chan struct{} // has room for one
}

// arm is one trigger of a watcher. Total is the lost time at which it fired last.
type arm struct {
	trigger cgroups.Trigger
	total   time.Duration
	fired   bool
}

// Watch calls fn when memory.events of the cgroup count something, and when [Tree.SetPressure] has let it lose as much
// more time as a trigger says, no matter how long the window is. V1 has neither.
func (t *Tree) Watch(ctx context.Context, p cgroups.Path, triggers []cgroups.Trigger, fn func(cgroups.Trigger)) error {
	w := &watcher{fired: make(chan struct{}, 1)}
	if err := t.call(ctx, "watch", p, func() error { return t.arm(w, p, triggers) }); err != nil {
		return err
	}
	defer t.disarm(w)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.fired:
		}
		fired, gone := t.took(w)
		for _, trigger := range fired {
			fn(trigger)
		}
		if gone {
			return &cgroups.Error{Op: "watch", Path: p, Err: fs.ErrNotExist}
		}
	}
}

// arm adds a watcher to the tree.
func (t *Tree) arm(w *watcher, p cgroups.Path, triggers []cgroups.Trigger) error {
	n, err := t.find(p)
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
		w.arms = append(w.arms, arm{trigger: trigger, total: n.lost(trigger)})
	}
	w.node = n
	t.watchers = append(t.watchers, w)
	return nil
}

func (t *Tree) disarm(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers = slices.DeleteFunc(t.watchers, func(o *watcher) bool { return o == w })
}

// took returns what has fired since.
func (t *Tree) took(w *watcher) (fired []cgroups.Trigger, gone bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range w.arms {
		if w.arms[i].fired {
			fired = append(fired, w.arms[i].trigger)
			w.arms[i].fired = false
		}
	}
	return fired, w.gone
}

// lost returns how much time n has lost of what a trigger counts.
func (n *node) lost(trigger cgroups.Trigger) time.Duration {
	resource, _ := strings.CutSuffix(trigger.File, ".pressure")
	i := slices.Index([]string{"cpu", "memory", "io"}, resource)
	if i < 0 {
		return 0
	}
	p := n.pressures()[i]
	if trigger.Full {
		return p.Full.Total
	}
	return p.Some.Total
}

// pressed fires the triggers of pressure for which enough time was lost.
func (t *Tree) pressed() {
	for _, w := range t.watchers {
		for i := range w.arms {
			a := &w.arms[i]
			if total := w.node.lost(a.trigger); a.trigger.Stall > 0 && total >= a.total+a.trigger.Stall {
				a.total = total
				w.fire(i)
			}
		}
	}
}

// counted fires the triggers of the memory events of n.
func (t *Tree) counted(n *node) {
	for _, w := range t.watchers {
		for i := range w.arms {
			if w.node == n && w.arms[i].trigger.File == "memory.events" {
				w.fire(i)
			}
		}
	}
}

// removed ends the watchers of n and of all below it.
func (t *Tree) removed(n *node) {
	for _, w := range t.watchers {
		for c := range w.node.upwards() {
			if c == n {
				w.gone = true
				w.wake()
			}
		}
	}
}

func (w *watcher) fire(i int) {
	w.arms[i].fired = true
	w.wake()
}

func (w *watcher) wake() {
	sleep.Wake(w.fired)
}
