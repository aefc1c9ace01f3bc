// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package static

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// removeTree unmounts all mounts below dir (the kubelet mounts its root directory onto itself) and removes dir. It removes
// no files while a mount remains.
func removeTree(dir string) error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, point := range mountsBelow(string(text), dir) {
		if err := syscall.Unmount(point, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", point, err)
		}
	}
	return os.RemoveAll(dir)
}

// mountsBelow lists the mount points in and below dir, the deepest first, from the text of /proc/PID/mountinfo.
func mountsBelow(mountinfo, dir string) []string {
	const mountPoint = 4
	var points []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) <= mountPoint {
			continue
		}
		point := strings.ReplaceAll(fields[mountPoint], `\040`, " ")
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	slices.SortStableFunc(points, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return points
}

// removeLogs removes the logs of a namespace's pods from the kubelet's default directories.
func removeLogs(namespace string) error {
	var errs []error
	for _, pattern := range []string{"/var/log/pods/" + namespace + "_*", "/var/log/containers/*_" + namespace + "_*"} {
		paths, _ := filepath.Glob(pattern) // the only error is a bad pattern
		for _, path := range paths {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	return errors.Join(errs...)
}

// devicePlugins is a directory that the kubelet uses with any root directory.
const devicePlugins = "/var/lib/kubelet/device-plugins"

// missingDirs lists the directories that a kubelet creates outside of its root directory, and that do not exist yet.
func missingDirs() []string {
	var missing []string
	for _, dir := range []string{devicePlugins, filepath.Dir(devicePlugins), "/var/log/containers", "/var/log/pods"} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, dir)
		}
	}
	return missing
}

// removeMade removes directories that missingDirs has returned. It keeps a directory with files other than the kubelet's own
// socket.
func removeMade(dirs []string) {
	for _, dir := range dirs {
		if dir == devicePlugins {
			os.Remove(filepath.Join(dir, "kubelet.sock"))
		}
		os.Remove(dir) // fails on a directory that is in use, as intended
	}
}

// kubeletRuns reports whether another kubelet serves device plugins on this machine: a second one would take its socket.
func kubeletRuns() bool {
	conn, err := net.DialTimeout("unix", filepath.Join(devicePlugins, "kubelet.sock"), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
