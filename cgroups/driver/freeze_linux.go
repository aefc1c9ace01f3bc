// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// setFrozen freezes a cgroup and its descendants if frozen is true, and otherwise thaws them. It waits until the kernel
// reports the new state.
func (t *treeV2) setFrozen(ctx context.Context, dir string, frozen bool) error {
	want := "0"
	if frozen {
		want = "1"
	}
	if err := t.h.writeFile(dir, "cgroup.freeze", want, 0); err != nil {
		return &fileError{"cgroup.freeze", err}
	}
	err := t.hierarchies.waitUntil(ctx, func() (bool, error) {
		var space [64]byte
		text, err := t.h.readFile(space[:0], dir, "cgroup.events")
		if err != nil {
			return false, &fileError{"cgroup.events", err}
		}
		events, err := cgroups.ParseCgroupEvents(text)
		return events.Frozen == frozen, err
	})
	if err != nil && frozen {
		// Thaw again: a partly frozen cgroup is worse than a running one.
		return errors.Join(err, ignoreAbsent(t.h.writeFile(dir, "cgroup.freeze", "0", 0)))
	}
	return err
}

func (t *treeV1) setFrozen(ctx context.Context, dir string, frozen bool) error {
	h := t.hierarchies.forController("freezer")
	switch {
	case h == nil:
		return fmt.Errorf("controller freezer: %w", errors.ErrUnsupported)
	case !h.cgroupExists(dir):
		return fs.ErrNotExist
	case !frozen:
		return t.thawAndWait(ctx, h, dir)
	}
	err := t.hierarchies.waitUntil(ctx, func() (bool, error) { return h.tryFreeze(dir) })
	if err != nil {
		return errors.Join(err, ignoreAbsent(h.writeFile(dir, freezerState, "THAWED", 0)))
	}
	return nil
}

func (t *treeV1) thawAndWait(ctx context.Context, h *hierarchy, dir string) error {
	return t.hierarchies.waitUntil(ctx, func() (bool, error) {
		if err := h.writeFile(dir, freezerState, "THAWED", 0); err != nil {
			return false, &fileError{freezerState, err}
		}
		state, err := h.readFreezerState(dir)
		return state == "THAWED", err
	})
}

const freezerState = "freezer.state"

// tryFreeze requests that the kernel freezes a cgroup, and reports whether it is frozen. New processes need a new
// request.
func (h *hierarchy) tryFreeze(dir string) (frozen bool, err error) {
	if err := h.writeFile(dir, freezerState, "FROZEN", 0); err != nil {
		return false, &fileError{freezerState, err}
	}
	state, err := h.readFreezerState(dir)
	return state == "FROZEN", err
}

func (h *hierarchy) readFreezerState(dir string) (string, error) {
	var space [32]byte
	text, err := h.readFile(space[:0], dir, freezerState)
	if err != nil {
		return "", &fileError{freezerState, err}
	}
	return strings.TrimSpace(string(text)), nil
}

// waitUntil calls done every 1 to 50 ms until it returns true or an error, ctx ends or the driver's timeout passes.
func (s *hierarchies) waitUntil(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("not complete after %v: %w", s.timeout, context.DeadlineExceeded))
	defer cancel()
	again := backoff.Policy{First: time.Millisecond, Max: 50 * time.Millisecond}
	for pause := again.First; ; pause = again.Next(pause) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if sleep.For(ctx, pause) != nil {
			return context.Cause(ctx)
		}
	}
}
