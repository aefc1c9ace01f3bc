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

// kill kills again and again until nothing runs: somebody may add processes all the while.
func (t *v2) kill(ctx context.Context, dir string) error {
	if err := t.refuseOwn(dir); err != nil {
		return err
	}
	err := t.wait(ctx, func() (bool, error) {
		if err := t.killOnce(dir); err != nil {
			return false, err
		}
		var space [64]byte
		text, err := t.h.read(space[:0], dir, "cgroup.events")
		if err != nil {
			return absent(err), unlessAbsent(err)
		}
		events, err := cgroups.ParseCgroupEvents(text)
		return !events.Populated, err
	})
	return t.stuck(dir, err)
}

func (t *v1) kill(ctx context.Context, dir string) error {
	if err := t.refuseOwn(dir); err != nil {
		return err
	}
	err := t.wait(ctx, func() (bool, error) {
		if err := t.killOnce(dir); err != nil {
			return false, err
		}
		pids, err := t.runs(dir)
		return len(pids) == 0, err
	})
	return t.stuck(dir, err)
}

// killOnce kills all that runs in a cgroup and below, at once where the kernel can (Linux 5.14), so that nothing can
// fork away from it. It does not wait for the end.
func (t *v2) killOnce(dir string) error {
	err := t.h.write(dir, "cgroup.kill", "1", 0)
	if err == nil || absent(err) && !t.h.exists(dir) {
		return nil
	}
	if !absent(err) && !errors.Is(err, unix.EOPNOTSUPP) { // the latter: a threaded cgroup
		return &fileError{"cgroup.kill", err}
	}
	// What is stopped does not fork, and dies all the same.
	_ = t.h.write(dir, "cgroup.freeze", "1", 0)
	err = t.signal(dir)
	return errors.Join(err, unlessAbsent(t.h.write(dir, "cgroup.freeze", "0", 0)))
}

// killOnce kills all that it finds in a cgroup and below, stopped meanwhile where there is a freezer, so that it does
// not fork away. What is stopped only dies when it goes on, and cgroups below may have been frozen on their own.
func (t *v1) killOnce(dir string) error {
	pids, err := t.runs(dir)
	if err != nil || len(pids) == 0 {
		return err
	}
	freezer := t.of("freezer")
	if freezer == nil || !freezer.exists(dir) {
		return t.signal(dir)
	}
	for range 20 { // what cannot be stopped in 20 ms can still be killed, if not everything at once
		if ok, err := freezer.tryFreeze(dir); ok || err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	err = t.signal(dir)
	return errors.Join(err, freezer.walk(dir, func(h *hierarchy, dir string) error {
		return unlessAbsent(h.write(dir, freezerState, "THAWED", 0))
	}))
}

// signal sends SIGKILL to all processes of a cgroup and below, and to no other that got the number of one meanwhile.
func (s *shared) signal(dir string) error {
	pids, err := s.runs(dir)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(pids, 256) {
		handles := make(map[int]int, len(chunk))
		for _, pid := range chunk {
			if fd, err := unix.PidfdOpen(pid, 0); err == nil {
				handles[pid] = fd
			}
		}
		// Each handle is on one process for good. Which of them are in the cgroup shows only now.
		members, err := s.runs(dir)
		for pid, fd := range handles {
			if _, ok := slices.BinarySearch(members, pid); ok && err == nil {
				_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // one that ended needs none, and others show as stuck
			}
			unix.Close(fd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runs is procs for a cgroup that may be absent.
func (s *shared) runs(dir string) ([]int, error) {
	pids, err := s.procs(dir)
	if absent(err) {
		return nil, nil
	}
	return pids, err
}

// refuseOwn is an error for a cgroup that the caller itself runs in.
func (s *shared) refuseOwn(dir string) error {
	pids, err := s.runs(dir)
	if _, own := slices.BinarySearch(pids, os.Getpid()); own {
		return fmt.Errorf("the calling process %d runs in it", os.Getpid())
	}
	return err
}
