// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// machine is one VM. It belongs to the thread that created it, which has its own mount namespace.
type machine struct {
	kernel  *kernel
	dir     string // in memory; only visible to this thread and the VM
	options options
	shares  []string

	stdout, stderr *os.File // output of the command, opened for reading
	console        *os.File // output of the kernel and the emulator
}

// newMachine creates the files that the VM needs on this machine. dir is an empty directory, the mount point of the VM's
// files.
func newMachine(k *kernel, dir string, j *job, o options) (*machine, error) {
	m := &machine{kernel: k, dir: dir, options: o, shares: j.Shares}
	if err := m.mount(); err != nil {
		return nil, err
	}
	if k.kind == "uml" {
		j.Results = dir
	}
	archive, err := initramfs(k, j)
	if err != nil {
		return nil, fmt.Errorf("write initramfs: %w", err)
	}
	if err := os.WriteFile(m.path("initramfs"), archive, 0o600); err != nil {
		return nil, err
	}
	for name, file := range map[string]**os.File{resultStdout: &m.stdout, resultStderr: &m.stderr, "console": &m.console} {
		*file, err = os.OpenFile(m.path(name), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
	}
	return m, os.WriteFile(m.path(resultStatus), nil, 0o600)
}

func (m *machine) path(name string) string { return filepath.Join(m.dir, name) }

// mount gives this thread a mount namespace in which the machine is read-only, except for the shared directories, so that no
// mistake in a VM changes it. The directory of the VM is in memory. The mounts end with the last process that uses them.
func (m *machine) mount() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, dir := range m.shares {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	readOnly := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, readOnly); err != nil {
		return fmt.Errorf("make mounts read-only: %w", err)
	}
	writable := &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	for _, dir := range m.shares {
		if err := unix.MountSetattr(unix.AT_FDCWD, dir, unix.AT_RECURSIVE, writable); err != nil {
			return fmt.Errorf("make %s writable: %w", dir, err)
		}
	}
	// User Mode Linux keeps its memory in a file here; the results need the remaining space.
	size := fmt.Sprintf("mode=0700,size=%dm", m.options.memory+1024)
	if err := unix.Mount("vm", m.dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, size); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", m.dir, err)
	}
	return nil
}

// run boots the VM, copies the output of its command, and returns the exit status for this process.
func (m *machine) run(ctx context.Context) (status int, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, m.options.timeout, errTimeout)
	defer cancel()
	args := m.stockCommand()
	env := []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + m.dir, "HOME=" + m.dir}
	if m.kernel.kind == "uml" {
		args, env = m.umlCommand(), append(env, "LD_PRELOAD="+m.kernel.xstate(), "UML_CLOCK="+m.options.clock)
	}
	// When the first process of a PID namespace exits, the kernel kills all others; it exits with this thread. It is a
	// shell, because a first process cannot abort, which is how User Mode Linux exits after a panic.
	cmd := exec.CommandContext(ctx, "/bin/sh", slices.Concat([]string{"-c", `"$@"; exit`, "sh"}, args)...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = m.console, m.console
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL, Setsid: true}
	if err := cmd.Start(); err != nil {
		return statusBroken, err
	}
	var copies sync.WaitGroup
	ended := make(chan struct{})
	copies.Go(func() { follow(os.Stdout, m.stdout, ended) })
	copies.Go(func() { follow(os.Stderr, m.stderr, ended) })
	err = cmd.Wait()
	close(ended)
	copies.Wait()

	text, readErr := os.ReadFile(m.path(resultStatus))
	if readErr != nil {
		return statusBroken, readErr
	}
	if status, parseErr := strconv.Atoi(strings.TrimSpace(string(text))); parseErr == nil {
		return status, nil
	}
	if errors.Is(context.Cause(ctx), errTimeout) {
		return statusTimeout, fmt.Errorf("the VM was ended after VM_TIMEOUT, %v%s", m.options.timeout, m.consoleTail())
	}
	return statusBroken, fmt.Errorf("the VM ended without an exit status: %w%s", errors.Join(err, errNoStatus), m.consoleTail())
}

var (
	errTimeout  = errors.New("timeout")
	errNoStatus = errors.New("its first process or its kernel died")
)

// consoleLines is the number of lines that show a kernel panic.
const consoleLines = 60

// consoleTail returns the last lines of the console, to print below an error.
func (m *machine) consoleTail() string {
	b, err := os.ReadFile(m.path("console"))
	if err != nil {
		return "\n" + err.Error()
	}
	lines := slices.Collect(bytes.Lines(bytes.ReplaceAll(b, []byte("\r"), nil)))
	last := bytes.Join(lines[max(0, len(lines)-consoleLines):], nil)
	return "; end of its console:\n" + strings.TrimSpace(string(last))
}

// follow copies data that is appended to a file, until the VM has stopped and all data is copied. It is a file, not a pipe,
// because both kernels can write to it and no process in the VM can keep it open.
func follow(to io.Writer, from *os.File, ended <-chan struct{}) {
	for {
		last := false
		select {
		case <-ended:
			last = true
		case <-time.After(20 * time.Millisecond):
		}
		if _, err := io.Copy(to, from); err != nil {
			fmt.Fprintln(os.Stderr, "vm: pass on output:", err)
			return
		}
		if last {
			return
		}
	}
}

// umlCommand returns the command line of User Mode Linux: https://docs.kernel.org/virt/uml/user_mode_linux_howto_v2.html Its
// memory is a file in TMPDIR, and its control socket is below HOME.
func (m *machine) umlCommand() []string {
	return []string{
		m.kernel.image(), fmt.Sprintf("mem=%dM", m.options.memory), "initrd=" + m.path("initramfs"), "quiet",
		"con0=null,fd:1", "con=null", "ssl=null", // no terminals but the console
	}
}

// stockCommand returns the command line of qemu with a stock kernel.
func (m *machine) stockCommand() []string {
	hardware := []string{"-m", strconv.Itoa(m.options.memory), "-smp", strconv.Itoa(m.options.cpus)}
	cpu := "max,la57=off" // all features that can be emulated, except the fifth level of page tables, which only makes walks longer
	if m.options.topology != (topology{}) {
		hardware = m.options.topology.arguments()
		cpu += ",vendor=GenuineIntel,family=6,model=85" // the kernel finds no threads in qemu's AMD CPUs, which lack topoext
	}
	args := []string{
		"qemu-system-x86_64", "-no-user-config", "-nodefaults", "-no-reboot", "-display", "none", "-machine", "pc",
		"-accel", "tcg,thread=multi,tb-size=512", "-cpu", cpu,
		"-kernel", m.kernel.image(), "-initrd", m.path("initramfs"),
		// Debian disables PSI; no cgroup v1 may take a controller; mitigations against hostile programs cost time.
		"-append", "console=ttyS0 quiet panic=-1 psi=1 cgroup_no_v1=all mitigations=off nopti audit=0 random.trust_cpu=on",
		"-serial", "file:" + m.path("console"),
		"-device", "virtio-serial-pci",
	}
	args = append(args, hardware...)
	for _, name := range []string{resultStdout, resultStderr, resultStatus} {
		args = append(args, "-chardev", "file,append=on,id="+name+",path="+optionValue(m.path(name)),
			"-device", "virtserialport,chardev="+name+",name="+name)
	}
	args = append(args, share("host", "/", ",readonly=on")...)
	for i, dir := range m.shares {
		args = append(args, share(shareTag(i), dir, "")...)
	}
	return args
}

// share returns the qemu options that export a directory of this machine as a 9p file system.
func share(tag, dir, more string) []string {
	return []string{
		"-fsdev", "local,security_model=none,multidevs=remap,id=" + tag + ",path=" + optionValue(dir) + more,
		"-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag,
	}
}

// optionValue escapes commas in a path, which separate options of qemu.
func optionValue(path string) string { return strings.ReplaceAll(path, ",", ",,") }

// shareTag returns the tag of a writable directory in the VM.
func shareTag(i int) string { return "rw" + strconv.Itoa(i) }
