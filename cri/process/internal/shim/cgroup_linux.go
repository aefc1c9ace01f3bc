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

// joinCgroups moves the calling thread to the cgroup v1 directories, and returns a descriptor of the v2 directory or -1.
func joinCgroups(dirs []string) (v2 int, err error) {
	v2 = -1 // the caller forks into v2: a thread cannot join it without its process
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
		if err := writeFile(filepath.Join(dir, "tasks"), "0"); err != nil { // "0" is the writing thread
			return v2, fmt.Errorf("join cgroup: %w", err)
		}
	}
	return v2, nil
}

// writeFile writes text to an existing file. It does not block: for a named pipe without a reader it returns an error.
func writeFile(path, text string) error {
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

// wasOOMKilled reports whether the OOM killer has killed a process in one of these cgroups.
func wasOOMKilled(dirs []string) bool {
	for _, dir := range dirs {
		for _, file := range []string{"memory.events", "memory.oom_control"} { // of cgroup v2 and v1
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

// Limits of the removal of cgroups.
const (
	cgroupTimeout  = 5 * time.Second        // time for the processes in the cgroups to exit
	outcomeTimeout = 500 * time.Millisecond // the same while a caller waits for the state of a container
	maxCgroupDepth = 32                     // maximum depth below the container's cgroup
	maxChildren    = 1000                   // maximum number of entries per directory and attempt
)

// killAndRemoveCgroups kills the processes in these cgroups, and removes them with their descendants within the time
// limit.
func killAndRemoveCgroups(dirs []string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	var errs []error
	for _, dir := range dirs {
		again := backoff.Policy{First: time.Millisecond, Max: 50 * time.Millisecond}
		for pause := again.First; ; pause = again.Next(pause) {
			err := tryRemoveCgroup(dir, maxCgroupDepth, deadline)
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

// tryRemoveCgroup removes a cgroup, if necessary after its processes are killed and its descendants removed.
func tryRemoveCgroup(dir string, maxDepth int, deadline time.Time) error {
	err := rmdirCgroup(dir)
	if err == nil || time.Now().After(deadline) {
		return err
	}
	killCgroup(dir)
	if maxDepth == 0 {
		return err
	}
	for _, name := range listSubdirs(dir) {
		_ = tryRemoveCgroup(filepath.Join(dir, name), maxDepth-1, deadline) // on error this cgroup is not empty either
	}
	return rmdirCgroup(dir)
}

// rmdirCgroup removes a cgroup without processes. A missing cgroup is no error.
func rmdirCgroup(dir string) error {
	if err := unix.Rmdir(dir); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// listSubdirs returns the subdirectories among the first maxChildren entries of the directory. The result may be incomplete,
// because the caller retries.
func listSubdirs(dir string) (names []string) {
	file, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer file.Close()
	entries, _ := file.ReadDir(maxChildren) // the next attempt reads the rest
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// killCgroup kills the processes of a cgroup. In cgroup v2 it also kills the processes of its descendants.
func killCgroup(dir string) {
	if writeFile(filepath.Join(dir, "cgroup.kill"), "1") == nil {
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
