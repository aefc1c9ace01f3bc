// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"

	"golang.org/x/sys/unix"
)

// killAll kills the processes in a cgroup until none is left. It kills repeatedly, because other programs may add processes.
func (t *treeV2) killAll(ctx context.Context, dir string) error {
	if err := t.hierarchies.checkNotOwnCgroup(dir); err != nil {
		return err
	}
	err := t.hierarchies.waitUntil(ctx, func() (bool, error) {
		if err := t.killOnce(dir); err != nil {
			return false, err
		}
		var space [64]byte
		text, err := t.h.readFile(space[:0], dir, "cgroup.events")
		if err != nil {
			return isAbsent(err), ignoreAbsent(err)
		}
		events, err := cgroups.ParseCgroupEvents(text)
		return !events.Populated, err
	})
	return t.hierarchies.withProcesses(dir, err)
}

func (t *treeV1) killAll(ctx context.Context, dir string) error {
	if err := t.hierarchies.checkNotOwnCgroup(dir); err != nil {
		return err
	}
	err := t.hierarchies.waitUntil(ctx, func() (bool, error) {
		if err := t.killOnce(dir); err != nil {
			return false, err
		}
		pids, err := t.hierarchies.listProcsIfExists(dir)
		return len(pids) == 0, err
	})
	return t.hierarchies.withProcesses(dir, err)
}

// killOnce sends SIGKILL to all processes in a cgroup and its descendants, and does not wait until they exit.
func (t *treeV2) killOnce(dir string) error {
	// since Linux 5.14; it also reaches processes that are being forked
	err := t.h.writeFile(dir, "cgroup.kill", "1", 0)
	if err == nil || isAbsent(err) && !t.h.cgroupExists(dir) {
		return nil
	}
	if !isAbsent(err) && !errors.Is(err, unix.EOPNOTSUPP) { // the latter: a threaded cgroup
		return &fileError{"cgroup.kill", err}
	}
	// Frozen processes do not fork, and SIGKILL ends them all the same.
	_ = t.h.writeFile(dir, "cgroup.freeze", "1", 0)
	err = t.hierarchies.killProcesses(dir)
	return errors.Join(err, ignoreAbsent(t.h.writeFile(dir, "cgroup.freeze", "0", 0)))
}

// killOnce sends SIGKILL to all processes in a cgroup and its descendants, which it freezes meanwhile if possible.
func (t *treeV1) killOnce(dir string) error {
	pids, err := t.hierarchies.listProcsIfExists(dir)
	if err != nil || len(pids) == 0 {
		return err
	}
	freezer := t.hierarchies.forController("freezer")
	if freezer == nil || !freezer.cgroupExists(dir) {
		return t.hierarchies.killProcesses(dir)
	}
	for range 20 { // after 20 ms kill without the freeze; the caller repeats killOnce
		if ok, err := freezer.tryFreeze(dir); ok || err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	// frozen processes do not fork, but on v1 they exit only when they are thawed
	err = t.hierarchies.killProcesses(dir)
	return errors.Join(err, freezer.visitDescendants(dir, func(h *hierarchy, dir string) error {
		return ignoreAbsent(h.writeFile(dir, freezerState, "THAWED", 0))
	}))
}

// killProcesses sends SIGKILL to each process in a cgroup and its descendants.
func (s *hierarchies) killProcesses(dir string) error {
	pids, err := s.listProcsIfExists(dir)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(pids, 256) {
		handles := make(map[int]int, len(chunk)) // pidfds: a PID may be reused
		for _, pid := range chunk {
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				handles[pid] = fd
			}
		}
		// A pidfd refers to one process. List the cgroup again to find out which of them are members.
		members, err := s.listProcsIfExists(dir)
		for pid, fd := range handles {
			if _, ok := slices.BinarySearch(members, pid); ok && err == nil {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // an exited process needs no signal; withProcesses reports all others
			}
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// listProcsIfExists returns the processes in a cgroup and its descendants. If the cgroup does not exist, it returns nil and
// no error.
func (s *hierarchies) listProcsIfExists(dir string) ([]int, error) {
	pids, err := s.listProcs(dir)
	if isAbsent(err) {
		return nil, nil
	}
	return pids, err
}

// checkNotOwnCgroup returns an error if the calling process is in the cgroup, because it would kill itself.
func (s *hierarchies) checkNotOwnCgroup(dir string) error {
	pids, err := s.listProcsIfExists(dir)
	if _, own := slices.BinarySearch(pids, os.Getpid()); own {
		return fmt.Errorf("the calling process %d runs in this cgroup", os.Getpid())
	}
	return err
}
