// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// unsupportedReason returns the reason for which a lab cannot run on this host, or "" if it can.
func unsupportedReason() string {
	if os.Geteuid() != 0 {
		return "a lab needs root: namespaces, mounts and cgroups"
	}
	return ""
}

func newSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// processStart returns the start time of a process in clock ticks since boot. ok is false if it has exited or is a zombie.
func processStart(pid int) (ticks uint64, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// proc(5): pid (comm) state ...; comm may contain any character, so fields are counted from its closing parenthesis.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0, false
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	return start, err == nil
}

// reapProcess reaps the process pid if it has exited and is a child of this process.
func reapProcess(pid int) {
	var status syscall.WaitStatus
	_, _ = syscall.Wait4(pid, &status, syscall.WNOHANG, nil)
}

// findProcesses returns the running processes of an executable that have the argument arg.
func findProcesses(exe, arg string) []process {
	// Several checkouts can share the executables.
	if target, err := filepath.EvalSymlinks(exe); err == nil {
		exe = target
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil
	}
	var found []process
	for _, dir := range dirs {
		target, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || strings.TrimSuffix(target, " (deleted)") != exe { // deleted: rebuilt since the start
			continue
		}
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !slices.Contains(strings.Split(string(cmdline), "\x00"), arg) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if start, ok := processStart(pid); ok {
			found = append(found, process{pid, start})
		}
	}
	return found
}

func tryLock(f *os.File, shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// mountsBelow returns the mount points at and below dir. The newest comes first, because mounts must be unmounted in this
// order.
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescapeMount.Replace(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.Reverse(points)
	return points, nil
}

// unescapeMount decodes white space and backslashes in mountinfo.
var unescapeMount = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// unmountLazily detaches the mount at point, if any. Processes can still use the files that they have open on it.
func unmountLazily(point string) error {
	if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}

// pickSnapshotter returns the containerd snapshotter for dir: "overlayfs", or "native" if the kernel cannot mount an overlay
// there.
func pickSnapshotter(dir string) (string, error) {
	probe, err := os.MkdirTemp(dir, "overlay")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(probe)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(probe, name), 0o700); err != nil {
			return "", err
		}
	}
	data := "lowerdir=" + probe + "/lower,upperdir=" + probe + "/upper,workdir=" + probe + "/work"
	if err := syscall.Mount("overlay", probe+"/merged", "overlay", 0, data); err != nil {
		return "native", nil
	}
	return "overlayfs", unmountLazily(probe + "/merged")
}

// mayLowerOOMScore reports whether this process has the capability CAP_SYS_RESOURCE, without which it cannot lower an OOM
// score adjustment.
func mayLowerOOMScore() (bool, error) {
	const capSysResource = 24 // linux/capability.h
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	_, rest, _ := strings.Cut(string(b), "\nCapEff:")
	line, _, _ := strings.Cut(rest, "\n")
	caps, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	if err != nil {
		return false, fmt.Errorf("parse CapEff in /proc/self/status: %w", err)
	}
	return caps&(1<<capSysResource) != 0, nil
}
