// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// poll is the pause between two looks at something that another process does.
const poll = 20 * time.Millisecond

// process is a process that this or another process started. The start time tells it from a later process with
// the same id.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks after boot
}

// spawn starts a program that outlives the caller, in a session of its own, with its output in a file.
func spawn(logPath, dir, path string, args ...string) (process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return process{}, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, dir
	// CNI plugins are found by configuration; iptables and mount helpers by PATH, which may lack sbin.
	cmd.Env = []string{"PATH=" + filepath.Dir(path) + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.SysProcAttr = newSession()
	if err := cmd.Start(); err != nil {
		return process{}, err
	}
	pid := cmd.Process.Pid
	start, ok := processStart(pid)
	if err := cmd.Process.Release(); err != nil {
		return process{}, err
	}
	if !ok {
		return process{}, fmt.Errorf("start %s: it ended at once, see %s", path, logPath)
	}
	return process{PID: pid, Start: start}, nil
}

// alive reports whether the process still runs. A zombie does not.
func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	start, ok := processStart(p.PID)
	return ok && start == p.Start
}

// kill sends SIGKILL and waits until the process is gone.
func (p process) kill(ctx context.Context) error {
	return p.end(ctx, syscall.SIGKILL)
}

// stop sends SIGTERM, and SIGKILL after the grace.
func (p process) stop(ctx context.Context, grace time.Duration) error {
	asked, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := p.end(asked, syscall.SIGTERM); err == nil || ctx.Err() != nil {
		return err
	}
	return p.end(ctx, syscall.SIGKILL)
}

func stopAll(ctx context.Context, all []process, grace time.Duration) error {
	var errs []error
	for _, p := range all {
		errs = append(errs, p.stop(ctx, grace))
	}
	return errors.Join(errs...)
}

func (p process) end(ctx context.Context, sig syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	running, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	if err := running.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	for p.alive() {
		if err := pause(ctx, poll); err != nil {
			return fmt.Errorf("wait for the end of process %d after %v: %w", p.PID, sig, err)
		}
	}
	reap(p.PID)
	return nil
}

// pause waits for d or for the end of ctx, whose error it returns.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// acquire takes a lock on a file, shared or exclusive, and waits for it until ctx ends. Closing the file, or the
// end of the process, releases it.
func acquire(ctx context.Context, path string, shared bool) (*os.File, error) {
	for {
		f, err := tryAcquire(path, shared)
		if err == nil || !errors.Is(err, errLocked) {
			return f, err
		}
		if err := pause(ctx, poll); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// errLocked says that another process holds the lock.
var errLocked = errors.New("locked by another process")

func tryAcquire(path string, shared bool) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := tryLock(f, shared); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
