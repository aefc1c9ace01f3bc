// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/internal/backoff"
)

// joinCgroups moves the calling thread to those directories that are of cgroup v1, and opens the one of v2: there a thread
// cannot be apart from its process, and a child is forked into the cgroup instead. It is -1 where there is none.
func joinCgroups(dirs []string) (v2 int, err error) {
	v2 = -1
	for _, dir := range dirs {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			return v2, fmt.Errorf("join cgroup: %w", &os.PathError{Op: "statfs", Path: dir, Err: err})
		}
		if st.Type == unix.CGROUP2_SUPER_MAGIC {
			if v2, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
				return -1, fmt.Errorf("join cgroup: %w", &os.PathError{Op: "open", Path: dir, Err: err})
			}
			continue
		}
		if err := writeTo(filepath.Join(dir, "tasks"), "0"); err != nil { // the thread that writes
			return v2, fmt.Errorf("join cgroup: %w", err)
		}
	}
	return v2, nil
}

// writeTo writes to a file that is there. It opens none that could be waited for.
func writeTo(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &os.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// oomKilled reports whether the kernel killed a process of cgroups for want of memory.
func oomKilled(dirs []string) bool {
	for _, dir := range dirs {
		for _, file := range []string{"memory.events", "memory.oom_control"} { // of v2 and of v1
			text, err := readRegular(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			if events, err := cgroups.ParseMemoryEvents(text); err == nil && events.OOMKill > 0 {
				return true
			}
		}
	}
	return false
}

// Bounds of the end of cgroups.
const (
	cgroupTime  = 5 * time.Second        // for what is in them to go
	outcomeTime = 500 * time.Millisecond // the same where somebody waits for the state of a container
	maxCgroups  = 32                     // levels below that of the container
	maxChildren = 1000                   // files and directories of each that are looked at in one attempt
)

// endCgroups kills what is left in cgroups and removes them, with those that the container has made below. What cannot be
// removed in time is left to whoever removes the container.
func endCgroups(dirs []string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	var errs []error
	for _, dir := range dirs {
		again := backoff.Policy{First: time.Millisecond, Max: 50 * time.Millisecond}
		for pause := again.First; ; pause = again.Next(pause) {
			err := endCgroup(dir, maxCgroups, deadline)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				errs = append(errs, &os.PathError{Op: "rmdir", Path: dir, Err: err})
				break
			}
			time.Sleep(pause)
		}
	}
	return errors.Join(errs...)
}

// endCgroup is one attempt to remove a cgroup, those below it first.
func endCgroup(dir string, levels int, deadline time.Time) error {
	err := removeCgroup(dir)
	if err == nil || time.Now().After(deadline) {
		return err
	}
	killCgroup(dir)
	if levels == 0 {
		return err
	}
	for _, name := range children(dir) {
		_ = endCgroup(filepath.Join(dir, name), levels-1, deadline) // then this one is not empty either
	}
	return removeCgroup(dir)
}

// removeCgroup removes one cgroup. One that is not there is success.
func removeCgroup(dir string) error {
	if err := unix.Rmdir(dir); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// children returns names of directories in a directory, which may not be all.
func children(dir string) (names []string) {
	file, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer file.Close()
	entries, _ := file.ReadDir(maxChildren) // what could not be read is for the next attempt
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// killCgroup kills what is in a cgroup: of v2 with all below it, of v1 without.
func killCgroup(dir string) {
	if writeTo(filepath.Join(dir, "cgroup.kill"), "1") == nil {
		return
	}
	text, err := readRegular(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return
	}
	pids, err := cgroups.ParsePIDs(text)
	if err != nil {
		return
	}
	for _, pid := range pids {
		if pid > 0 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
