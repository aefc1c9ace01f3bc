// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mountPoint is one mount; a missing target is created.
type mountPoint struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mountPoint) mount() error {
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mount %s %s on %s with %q: %w", m.kind, m.source, m.target, m.data, err)
	}
	return nil
}

func mountAll(points []mountPoint) error {
	for _, m := range points {
		if err := m.mount(); err != nil {
			return err
		}
	}
	return nil
}

// hostMount mounts a directory of the host, which qemu exports under a tag.
func (j job) hostMount(tag, dir, target string, flags uintptr, cache string) error {
	if j.Kind == "uml" {
		return mountPoint{"none", target, "hostfs", flags, dir}.mount()
	}
	m := mountPoint{tag, target, "9p", flags, "trans=virtio,version=9p2000.L,msize=512000,access=any,cache=" + cache}
	for deadline := time.Now().Add(deviceTimeout); ; time.Sleep(10 * time.Millisecond) {
		err := m.mount()
		if !errors.Is(err, unix.ENOENT) || time.Now().After(deadline) { // ENOENT: the device does not exist yet
			return err
		}
	}
}

// mountRoot mounts an overlay in memory over the files of the host as the root, and leaves the initramfs.
func mountRoot(j job) error {
	// No other program writes to the host's files through this mount: the client may cache them.
	if err := j.hostMount("host", "/", "/lower", unix.MS_RDONLY, "loose"); err != nil {
		return err
	}
	if err := (mountPoint{source: "upper", target: "/upper", kind: "tmpfs"}).mount(); err != nil {
		return err
	}
	for _, dir := range []string{"/upper/files", "/upper/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	err := mountAll([]mountPoint{
		{"root", "/root", "overlay", 0, "lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work"},
		{source: "/proc", target: "/root/proc", flags: unix.MS_MOVE},
		{source: "/sys", target: "/root/sys", flags: unix.MS_MOVE},
		{source: "/dev", target: "/root/dev", flags: unix.MS_MOVE},
	})
	if err != nil {
		return err
	}
	if err := os.Chdir("/root"); err != nil {
		return err
	}
	// Move the mount onto the root: after a mere chroot, pivot_root would fail, and with it every container.
	if err := unix.Mount("/root", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	return os.Chdir("/")
}

// mountSystem mounts the file systems of a running system, such as /proc.
func mountSystem(j job) error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	points := []mountPoint{
		{"devpts", "/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
		{"shm", "/dev/shm", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"run", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"vm", "/vm", "tmpfs", 0, "mode=755"},
		{"tmp", "/vm/tmp", "tmpfs", 0, "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", plain, ""},
	}
	for _, dir := range j.Scratch {
		points = append(points, mountPoint{"scratch", dir, "tmpfs", 0, "mode=755"})
	}
	if err := mountAll(points); err != nil {
		return err
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+"+controller), 0); err != nil {
			return err
		}
	}
	return nil
}

// mountModules mounts the modules of this kernel at the path that modprobe reads.
func mountModules(j job) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("ask for the version of the kernel: %w", err)
	}
	release, _, _ := bytes.Cut(name.Release[:], []byte{0})
	source, target := filepath.Join(j.Modules, string(release)), filepath.Join("/lib/modules", string(release))
	return mountPoint{source: source, target: target, flags: unix.MS_BIND}.mount()
}

// mountShares mounts the writable directories of the host.
func mountShares(j job) error {
	if j.Results != "" {
		if err := j.hostMount("", j.Results, "/vm/results", 0, ""); err != nil {
			return err
		}
	}
	for i, dir := range j.Shares {
		// Write-through, and mmap, which coverage needs.
		if err := j.hostMount(shareTag(i), dir, dir, 0, "mmap"); err != nil {
			return err
		}
	}
	return nil
}
