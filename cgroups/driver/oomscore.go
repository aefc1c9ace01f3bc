// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// SetOOMScoreAdj writes how likely the OOM killer is to choose a process, from -1000 for never to 1000. A PID of 0 is
// the caller. To write less than a process has takes CAP_SYS_RESOURCE. Like that of the kubelet (pkg/util/oom) it tries
// twice, 100 ms apart, but a process that is not there is an error wrapping [io/fs.ErrNotExist] at once.
func SetOOMScoreAdj(ctx context.Context, pid, adj int) error {
	switch {
	case pid < 0:
		return fmt.Errorf("set OOM score: no process has the PID %d", pid)
	case adj < -1000 || adj > 1000:
		return fmt.Errorf("set OOM score of process %d: %d is not from -1000 to 1000", pid, adj)
	}
	process := "self"
	if pid > 0 {
		process = strconv.Itoa(pid)
	}
	write := func() error {
		err := os.WriteFile("/proc/"+process+"/oom_score_adj", strconv.AppendInt(nil, int64(adj), 10), 0)
		if errors.Is(err, syscall.ESRCH) { // it ended while the file was open
			return fs.ErrNotExist
		}
		return err
	}
	err := write()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(oomRetry):
			err = write()
		}
	}
	if err != nil {
		return fmt.Errorf("set OOM score of process %d to %d: %w", pid, adj, err)
	}
	return nil
}

const (
	oomRetry  = 100 * time.Millisecond // before the second try at a process
	oomRounds = 10                     // of a cgroup
	oomPause  = 10 * time.Millisecond  // between them
)

// SetOOMScoreAdj writes the OOM score of every process of a cgroup and below. It begins again until it has met all
// that are there, and at least one, at most ten times: meanwhile some may start, and others end.
func (d *Driver) SetOOMScoreAdj(ctx context.Context, p cgroups.Path, adj int) error {
	done := map[int]bool{}
	for round := range oomRounds {
		if round > 0 {
			select {
			case <-ctx.Done():
				return &cgroups.Error{Op: "set OOM scores of", Path: p, Err: ctx.Err()}
			case <-time.After(oomPause):
			}
		}
		pids, err := d.Procs(ctx, p)
		if err != nil {
			return err
		}
		settled := len(pids) > 0
		for _, pid := range pids {
			if done[pid] {
				continue
			}
			settled = false // those that it has started meanwhile show in the next round
			err := SetOOMScoreAdj(ctx, pid, adj)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return &cgroups.Error{Op: "set OOM scores of", Path: p, Err: err}
			}
			done[pid] = err == nil
		}
		if settled {
			return nil
		}
	}
	return &cgroups.Error{Op: "set OOM scores of", Path: p, Err: fmt.Errorf("it has no processes, or new ones after %d rounds", oomRounds)}
}
