// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// deviceTimeout is the time for devices to appear: the kernel probes them while its first process already runs.
const deviceTimeout = 20 * time.Second

// guestMain is the first process of a VM. It never returns, because a kernel without a first process panics.
func guestMain() {
	j, err := guestRun()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm: first process:", err) // to the console
	}
	unix.Sync()                          // data written to shares may still be in memory
	how := unix.LINUX_REBOOT_CMD_RESTART // ends qemu, which runs with -no-reboot
	if j.Kind == "uml" {
		how = unix.LINUX_REBOOT_CMD_POWER_OFF
	}
	err = unix.Reboot(how)
	fmt.Fprintln(os.Stderr, "vm: end the VM:", err)
	select {}
}

// guestRun sets up a system, runs the command of the job in it, and stores its exit status on the host.
func guestRun() (job, error) {
	var j job
	err := mountAll([]mountPoint{
		{source: "proc", target: "/proc", kind: "proc"},
		{source: "sys", target: "/sys", kind: "sysfs"},
		{source: "dev", target: "/dev", kind: "devtmpfs"},
	})
	if err != nil {
		return j, err
	}
	f, err := os.Open(guestJob)
	if err != nil {
		return j, err
	}
	if err := gob.NewDecoder(f).Decode(&j); err != nil {
		return j, fmt.Errorf("read job: %w", err)
	}
	for _, step := range []func(job) error{loadModules, mountRoot, mountSystem, mountModules, mountShares, configure} {
		if err := step(j); err != nil {
			return j, err
		}
	}
	stdout, err := j.result(resultStdout)
	if err != nil {
		return j, err
	}
	stderr, err := j.result(resultStderr)
	if err != nil {
		return j, err
	}
	result, err := j.result(resultStatus)
	if err != nil {
		return j, err
	}
	status := j.execute(stdout, stderr)
	_, err = result.WriteString(strconv.Itoa(status))
	return j, err
}

func loadModules(job) error {
	entries, err := os.ReadDir(guestModules)
	if err != nil {
		return err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(guestModules, e.Name()))
		if err != nil {
			return err
		}
		if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load module %s: %w", e.Name(), err)
		}
		f.Close()
	}
	return nil
}

// configure performs the boot steps of a distribution that programs rely on.
func configure(j job) error {
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2",
	} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	// The initial hard limit of the kernel, 4096 files, is too low for containerd.
	files := &unix.Rlimit{Cur: 1 << 10, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, files); err != nil {
		return fmt.Errorf("raise limit of open files: %w", err)
	}
	if err := unix.Sethostname([]byte("vm")); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	return errors.Join(loopbackUp(), legacyTables(j))
}

// legacyTables selects the legacy iptables of Debian if the kernel has no nftables, as User Mode Linux.
func legacyTables(j job) error {
	if j.Kind != "uml" {
		return nil
	}
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		link := "/etc/alternatives/" + name
		if err := os.Remove(link); errors.Is(err, os.ErrNotExist) { // not installed
			continue
		} else if err != nil {
			return err
		}
		legacy := strings.Replace(name, "iptables", "/usr/sbin/iptables-legacy", 1)
		if err := os.Symlink(legacy, link); err != nil {
			return err
		}
	}
	return nil
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("set loopback interface up: %w", err)
	}
	return nil
}

// result opens a result of the job for writing.
func (j job) result(name string) (*os.File, error) {
	if j.Kind == "uml" {
		return os.OpenFile(filepath.Join("/vm/results", name), os.O_WRONLY|os.O_APPEND, 0)
	}
	for deadline := time.Now().Add(deviceTimeout); ; time.Sleep(10 * time.Millisecond) {
		names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
		if err != nil {
			return nil, err
		}
		for _, path := range names {
			if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) == name {
				return os.OpenFile(filepath.Join("/dev", filepath.Base(filepath.Dir(path))), os.O_WRONLY, 0)
			}
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("find port %s: only %q after %v", name, names, deviceTimeout)
		}
	}
}

// execute runs the command, copies its output, and returns its exit status, or that of a shell if the command cannot be run.
// When it returns, no process of the command is running.
func (j job) execute(stdout, stderr *os.File) (status int) {
	// Pipes, because programs open /dev/stderr, and a port can be opened only once.
	out, closeOut, err := passOn(stdout)
	if err != nil {
		return cannotRun(stderr, err)
	}
	errs, closeErrs, err := passOn(stderr)
	if err != nil {
		return cannotRun(stderr, err)
	}
	ended, err := j.command(out, errs)
	_ = unix.Kill(-1, unix.SIGKILL) // kill remaining processes, which would keep the pipes open; there may be none
	if err := errors.Join(closeOut(), closeErrs()); err != nil {
		fmt.Fprintln(os.Stderr, "vm: pass on output:", err)
	}
	if err != nil {
		return cannotRun(stderr, err)
	}
	if ended.Signaled() {
		fmt.Fprintf(stderr, "vm: %s: killed by signal: %v\n", j.Args[0], ended.Signal())
		return statusSignalBase + int(ended.Signal())
	}
	return ended.ExitStatus()
}

func cannotRun(stderr *os.File, err error) int {
	fmt.Fprintln(stderr, "vm:", err)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
		return statusNotFound
	}
	return statusCannotRun
}

// passOn returns a pipe that is copied to a result, and a function that waits until all its content is copied.
func passOn(to *os.File) (write *os.File, done func() error, err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, read)
		copied <- err
	}()
	return write, func() error {
		write.Close()
		// A process in uninterruptible sleep survives SIGKILL and may keep the other end open.
		if err := read.SetReadDeadline(time.Now().Add(deviceTimeout)); err != nil {
			return err
		}
		return <-copied
	}, nil
}

// command runs the command until it exits.
func (j job) command(stdout, stderr *os.File) (ended unix.WaitStatus, err error) {
	for _, v := range j.Env { // for the search in PATH
		if path, found := strings.CutPrefix(v, "PATH="); found {
			os.Setenv("PATH", path)
		}
	}
	if err := os.Chdir(j.Dir); err != nil {
		return 0, err
	}
	path, err := exec.LookPath(j.Args[0])
	if err != nil {
		return 0, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	p, err := os.StartProcess(path, j.Args, &os.ProcAttr{
		Env: j.Env, Files: []*os.File{null, stdout, stderr}, Sys: &unix.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, err
	}
	// Not p.Wait: the first process must also reap orphaned processes.
	for {
		if pid, err := unix.Wait4(-1, &ended, 0, nil); err == nil && pid == p.Pid {
			return ended, nil
		}
	}
}
