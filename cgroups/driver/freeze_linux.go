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

// freeze stops or goes on with what runs in a cgroup and below, and waits until the kernel says that it did.
func (t *v2) freeze(ctx context.Context, dir string, frozen bool) error {
	want := "0"
	if frozen {
		want = "1"
	}
	if err := t.h.write(dir, "cgroup.freeze", want, 0); err != nil {
		return &fileError{"cgroup.freeze", err}
	}
	err := t.wait(ctx, func() (bool, error) {
		var space [64]byte
		text, err := t.h.read(space[:0], dir, "cgroup.events")
		if err != nil {
			return false, &fileError{"cgroup.events", err}
		}
		events, err := cgroups.ParseCgroupEvents(text)
		return events.Frozen == frozen, err
	})
	if err != nil && frozen {
		// Half frozen is worse than not.
		return errors.Join(err, unlessAbsent(t.h.write(dir, "cgroup.freeze", "0", 0)))
	}
	return err
}

func (t *v1) freeze(ctx context.Context, dir string, frozen bool) error {
	h := t.of("freezer")
	switch {
	case h == nil:
		return fmt.Errorf("controller freezer: %w", errors.ErrUnsupported)
	case !h.exists(dir):
		return fs.ErrNotExist
	case !frozen:
		return t.thaw(ctx, h, dir)
	}
	err := t.wait(ctx, func() (bool, error) { return h.tryFreeze(dir) })
	if err != nil {
		return errors.Join(err, unlessAbsent(h.write(dir, freezerState, "THAWED", 0)))
	}
	return nil
}

func (t *v1) thaw(ctx context.Context, h *hierarchy, dir string) error {
	return t.wait(ctx, func() (bool, error) {
		if err := h.write(dir, freezerState, "THAWED", 0); err != nil {
			return false, &fileError{freezerState, err}
		}
		state, err := h.freezerState(dir)
		return state == "THAWED", err
	})
}

const freezerState = "freezer.state"

// tryFreeze asks for what runs in a cgroup to be stopped, and reports whether all of it is. Where processes are added
// meanwhile, asking again is what makes the kernel look at them.
func (h *hierarchy) tryFreeze(dir string) (bool, error) {
	if err := h.write(dir, freezerState, "FROZEN", 0); err != nil {
		return false, &fileError{freezerState, err}
	}
	state, err := h.freezerState(dir)
	return state == "FROZEN", err
}

func (h *hierarchy) freezerState(dir string) (string, error) {
	var space [32]byte
	text, err := h.read(space[:0], dir, freezerState)
	if err != nil {
		return "", &fileError{freezerState, err}
	}
	return strings.TrimSpace(string(text)), nil
}

// wait asks again, less and less often, until the answer is yes, an error, or the time is up.
func (s *shared) wait(ctx context.Context, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("not done after %v: %w", s.timeout, context.DeadlineExceeded))
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
