// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func (t *v2) remove(ctx context.Context, dir string) error { return t.removeWith(ctx, dir, t.killOnce) }

func (t *v1) remove(ctx context.Context, dir string) error { return t.removeWith(ctx, dir, t.killOnce) }

// removeWith removes a cgroup and all below it from every hierarchy, killing what runs there. Most cgroups are empty
// by then and go with one call each.
func (s *shared) removeWith(ctx context.Context, dir string, killOnce func(string) error) error {
	if err := s.rmdir(dir); !busy(err) {
		return err
	}
	if err := s.refuseOwn(dir); err != nil {
		return err
	}
	var last error
	err := s.wait(ctx, func() (bool, error) {
		if err := killOnce(dir); err != nil {
			return false, err
		}
		last = s.rmdirAll(dir)
		if busy(last) { // what was killed takes a moment to go, or somebody adds to the cgroup
			return false, nil
		}
		return true, last
	})
	if err != nil && busy(last) {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return s.stuck(dir, err)
}

// rmdir removes one cgroup from every hierarchy.
func (s *shared) rmdir(dir string) error {
	var errs []error
	for _, h := range s.all {
		if err := h.rmdir(dir); err != nil {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: h.path(dir), Err: err})
		}
	}
	return errors.Join(errs...)
}

// rmdirAll removes a cgroup and all below it from every hierarchy, or as much of it as goes.
func (s *shared) rmdirAll(dir string) error {
	var errs []error
	for _, h := range s.all {
		errs = append(errs, h.walk(dir, func(h *hierarchy, dir string) error {
			if err := h.rmdir(dir); err != nil {
				return &os.PathError{Op: "rmdir", Path: h.path(dir), Err: err}
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// busy tells a cgroup that has processes or cgroups in it.
func busy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) }

// stuck adds to an error what still runs in a cgroup, and what it waits for.
func (s *shared) stuck(dir string, err error) error {
	if err == nil {
		return nil
	}
	pids, _ := s.runs(dir)
	if len(pids) == 0 {
		return err
	}
	var b strings.Builder
	for i, pid := range pids {
		if i == 5 {
			fmt.Fprintf(&b, ", and %d more", len(pids)-i)
			break
		}
		fmt.Fprintf(&b, ", %s", process(pid))
	}
	return fmt.Errorf("%w; still there: %s", err, b.String()[2:])
}

// process describes a process for who wonders why it is still there: "12 (dd) in state D at io_schedule".
func process(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	// The name is in parentheses and may have any character in it; the state comes next.
	i := bytes.LastIndexByte(stat, ')')
	if err != nil || i < 0 || len(stat) < i+3 {
		return strconv.Itoa(pid)
	}
	text := fmt.Sprintf("%.64q in state %c", stat[:i+1], stat[i+2])
	if wchan, err := os.ReadFile(dir + "/wchan"); err == nil && len(wchan) > 1 {
		text += fmt.Sprintf(" at %.64s", wchan)
	}
	return text
}
