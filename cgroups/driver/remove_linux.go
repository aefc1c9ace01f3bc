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

func (t *treeV2) removeCgroup(ctx context.Context, dir string) error {
	return t.hierarchies.killAndRemove(ctx, dir, t.killOnce)
}

func (t *treeV1) removeCgroup(ctx context.Context, dir string) error {
	return t.hierarchies.killAndRemove(ctx, dir, t.killOnce)
}

// killAndRemove removes a cgroup and its descendants from all hierarchies, after killOnce has killed their processes.
func (s *hierarchies) killAndRemove(ctx context.Context, dir string, killOnce func(string) error) error {
	// most cgroups are empty and need one system call per hierarchy
	if err := s.rmdir(dir); !isBusy(err) {
		return err
	}
	if err := s.checkNotOwnCgroup(dir); err != nil {
		return err
	}
	var last error
	err := s.waitUntil(ctx, func() (bool, error) {
		if err := killOnce(dir); err != nil {
			return false, err
		}
		last = s.rmdirAll(dir)
		if isBusy(last) { // killed processes need a moment to exit, or new processes were added
			return false, nil
		}
		return true, last
	})
	if err != nil && isBusy(last) {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return s.withProcesses(dir, err)
}

// rmdir removes the directory of a cgroup from all hierarchies. The cgroup must have no processes and no children.
func (s *hierarchies) rmdir(dir string) error {
	var errs []error
	for _, h := range s.all {
		if err := h.rmdir(dir); err != nil {
			errs = append(errs, &os.PathError{Op: "rmdir", Path: h.absolutePath(dir), Err: err})
		}
	}
	return errors.Join(errs...)
}

// rmdirAll removes a cgroup and its descendants from all hierarchies. It continues after an error, and joins all errors.
func (s *hierarchies) rmdirAll(dir string) error {
	var errs []error
	for _, h := range s.all {
		errs = append(errs, h.visitDescendants(dir, func(h *hierarchy, dir string) error {
			if err := h.rmdir(dir); err != nil {
				return &os.PathError{Op: "rmdir", Path: h.absolutePath(dir), Err: err}
			}
			return nil
		}))
	}
	return errors.Join(errs...)
}

// isBusy reports whether err means that a cgroup still has processes or children.
func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY) }

// withProcesses returns err with a list of the processes that still run in a cgroup, and their states.
func (s *hierarchies) withProcesses(dir string, err error) error {
	if err == nil {
		return nil
	}
	pids, _ := s.listProcsIfExists(dir)
	if len(pids) == 0 {
		return err
	}
	var b strings.Builder
	for i, pid := range pids {
		if i == 5 {
			fmt.Fprintf(&b, ", and %d more", len(pids)-i)
			break
		}
		fmt.Fprintf(&b, ", %s", describeProcess(pid))
	}
	return fmt.Errorf("%w; remaining processes: %s", err, b.String()[2:])
}

// describeProcess describes a process and the kernel function in which it waits, such as "12 (dd) in state D at
// io_schedule".
func describeProcess(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	stat, err := os.ReadFile(dir + "/stat")
	// The name is in parentheses and may contain any character; the state follows it.
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
