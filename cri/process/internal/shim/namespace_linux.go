// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri/process/internal/mountns"
)

// enterEnvironment moves the calling thread, which forks the processes, to the cgroups, namespaces and directory of the
// container.
func (k *shimServer) enterEnvironment() (err error) {
	if k.spec.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return os.NewSyscallError("prctl", err)
		}
	}
	if k.cgroupFD, err = joinCgroups(k.spec.Cgroups); err != nil {
		return err
	}
	if k.oom, err = newOOMScore(k.spec.OOMScoreAdj); err != nil {
		return err
	}
	if err := enterNetwork(k.spec.Netns, k.spec.Sysctls); err != nil {
		return err
	}
	if k.spec.Hostname != "" {
		if err := enterUTS(k.spec.Hostname); err != nil {
			return fmt.Errorf("set host name %q: %w", k.spec.Hostname, err)
		}
	}
	if k.spec.MountNamespace {
		if err := mountns.Enter(k.spec.Mounts, k.dir); err != nil {
			return err
		}
	}
	if err := unix.Chdir(k.spec.Dir); err != nil {
		return fmt.Errorf("enter working directory: %w", &os.PathError{Op: "chdir", Path: k.spec.Dir, Err: err})
	}
	return nil
}

// IsNetworkSysctl reports whether a sysctl belongs to the network namespace, such as net.ipv4.ip_forward. These sysctls are
// the files below /proc/sys/net.
func IsNetworkSysctl(name string) bool {
	return strings.HasPrefix(name, "net.") && !strings.Contains(name, "/") && !strings.Contains(name, "..") && !strings.Contains(name, "\x00")
}

// enterNetwork moves the thread to the network namespace at path, or stays on the host if path is empty, and sets the sysctls.
func enterNetwork(path string, sysctls map[string]string) error {
	// a sysctl on the host's network or outside network namespaces would change the host
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		if path == "" || !IsNetworkSysctl(name) {
			return fmt.Errorf("set sysctl %.128q to %.128q: it would change the host", name, sysctls[name])
		}
	}
	if path == "" {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("enter network namespace: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	defer unix.Close(fd)
	if own, err := isOwnNetwork(fd); len(sysctls) > 0 && (own || err != nil) {
		return errors.Join(fmt.Errorf("set %d sysctls: network namespace %s is the agent's, or cannot be compared with it", len(sysctls), path), err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(sysctls)) {
		file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
		if err := os.WriteFile(file, []byte(sysctls[name]), 0o600); err != nil {
			return fmt.Errorf("set sysctl %s to %q: %w", name, sysctls[name], err)
		}
	}
	return nil
}

// isOwnNetwork reports whether a descriptor refers to the network namespace of this thread.
func isOwnNetwork(fd int) (bool, error) {
	var own, other unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &own); err != nil {
		return false, fmt.Errorf("stat own network namespace: %w", err)
	}
	if err := unix.Fstat(fd, &other); err != nil {
		return false, fmt.Errorf("stat network namespace: %w", err)
	}
	return own.Dev == other.Dev && own.Ino == other.Ino, nil
}

// enterUTS moves the thread to a new UTS namespace, and sets the host name there.
func enterUTS(hostname string) error {
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	return os.NewSyscallError("sethostname", unix.Sethostname([]byte(hostname)))
}

// oomScore sets the OOM score adjustment that forked processes inherit. Setting it after the fork would miss their own children.
type oomScore struct {
	file *os.File // oom_score_adj of the shim
	own  string
	adj  string
}

// newOOMScore returns an oomScore that sets this OOM score adjustment for forked processes. It returns nil if adj is nil.
func newOOMScore(adj *int) (*oomScore, error) {
	if adj == nil {
		return nil, nil
	}
	file, err := os.OpenFile("/proc/self/oom_score_adj", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	own := make([]byte, 16)
	n, err := file.Read(own)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &oomScore{file: file, own: string(own[:n]), adj: fmt.Sprintln(*adj)}, nil
}

// callAdjusted calls a function that forks a process, while the shim has the OOM score adjustment that the process inherits.
func (o *oomScore) callAdjusted(fn func()) {
	if o == nil {
		fn()
		return
	}
	_, err := o.file.WriteAt([]byte(o.adj), 0)
	fn()
	if err == nil {
		_, err = o.file.WriteAt([]byte(o.own), 0)
	}
	if err != nil && !os.IsPermission(err) { // without permission, the process inherits the shim's own
		fmt.Fprintln(os.Stderr, "set OOM score adjustment:", err)
	}
}
