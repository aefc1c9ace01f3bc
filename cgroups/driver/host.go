// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Mode is the cgroup version of the host.
type Mode string

const (
	// V2 is one hierarchy with all controllers.
	V2 Mode = "v2"
	// V1 is one hierarchy per controller or group of controllers.
	V1 Mode = "v1"
	// Hybrid is V1 with an additional v2 hierarchy that has no controllers.
	Hybrid Mode = "hybrid"
)

// Host describes the cgroups of the host, as inspected by [Open].
type Host struct {
	Mode Mode
	// Dirs maps the name of each controller, for example "memory", to the directory of the driver's root in its hierarchy.
	Dirs map[string]string
	// Missing lists, sorted, the missing features among "cpu", "cpuset", "hugetlb", "memory", "pids" and "swap". Limits that need
	// a missing feature are skipped.
	Missing []string
	// HugepageSizes lists the page sizes of the kernel, for example "2MB". They cannot be limited if "hugetlb" is missing.
	HugepageSizes []string
	// Pressure reports that the kernel measures pressure (PSI). Only v2 has it per cgroup.
	Pressure bool
}

// HasController reports whether the host has this controller. The name "swap" stands for the limits of swap.
func (h Host) HasController(controller string) bool {
	if controller == swap {
		return h.HasController("memory") && !slices.Contains(h.Missing, swap)
	}
	return h.Dirs[controller] != ""
}

// swap is the entry of Host.Missing for a kernel that cannot limit swap.
const swap = "swap"

// setMissing sets h.Missing to the controllers that the host lacks. It returns an error if cpu or pids is missing and not
// optional.
func (h *Host) setMissing(limitsSwap bool, optional []string) error {
	h.Missing = nil
	for _, c := range []string{"cpu", "cpuset", "hugetlb", "memory", "pids"} {
		if h.HasController(c) {
			continue
		}
		h.Missing = append(h.Missing, c)
		if (c == "cpu" || c == "pids") && !slices.Contains(optional, c) {
			return fmt.Errorf("controller %s is not available in the root cgroup and not in Options.OptionalControllers", c)
		}
	}
	if !limitsSwap || !h.HasController("memory") {
		h.Missing = append(h.Missing, swap)
	}
	return nil
}

// mount describes one cgroup mount of the host, parsed from a line of /proc/self/mountinfo.
type mount struct {
	device      string // major:minor; equal for all mounts of a hierarchy
	dir         string
	v2          bool
	controllers []string // v1 only; a hierarchy without controllers has its name, for example "name=systemd"
}

// parseMounts returns the cgroup mounts in /proc/PID/mountinfo, one per hierarchy. Source: proc_pid_mountinfo(5).
func parseMounts(mountinfo string) []mount {
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		m, ok := parseMount(line)
		if !ok {
			continue
		}
		same := slices.IndexFunc(mounts, func(o mount) bool { return o.device == m.device })
		switch {
		case same < 0:
			mounts = append(mounts, m)
		case len(m.dir) < len(mounts[same].dir): // the shortest path, as in the kubelet
			mounts[same] = m
		}
	}
	return mounts
}

// parseMount parses one line of /proc/PID/mountinfo. ok is false if the file system is no cgroup hierarchy.
func parseMount(line string) (found mount, ok bool) {
	before, after, ok := strings.Cut(line, " - ")
	// six fields, optional fields, a hyphen, and then the type, source and options of the file system
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 6 || len(right) < 3 {
		return mount{}, false
	}
	m := mount{device: left[2], dir: unescapePath(left[4]), v2: right[0] == "cgroup2"}
	if !m.v2 && right[0] != "cgroup" {
		return mount{}, false
	}
	// on v1 the options name the controllers
	for option := range strings.SplitSeq(right[2], ",") {
		if !m.v2 && (isController(option) || strings.HasPrefix(option, "name=")) {
			m.controllers = append(m.controllers, option)
		}
	}
	return m, m.v2 || len(m.controllers) > 0
}

// isController reports whether a mount option is the name of a v1 controller.
func isController(option string) bool {
	switch option {
	case "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc", "net_cls", "net_prio",
		"perf_event", "pids", "rdma":
		return true
	}
	return false
}

// unescapePath decodes a path from /proc/PID/mountinfo. There, octal escapes stand for space, tab, newline and backslash.
func unescapePath(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// selectMounts returns the cgroup mode of the host, and the mounts that the driver uses.
func selectMounts(mounts []mount) (Mode, []mount, error) {
	slices.SortFunc(mounts, func(a, b mount) int { return cmp.Compare(a.dir, b.dir) })
	// a controller is in one version only: a v1 mount without controllers does not count
	v1 := slices.ContainsFunc(mounts, func(m mount) bool { return slices.ContainsFunc(m.controllers, isController) })
	v2 := slices.ContainsFunc(mounts, func(m mount) bool { return m.v2 })
	switch {
	case v1 && v2:
		return Hybrid, mounts, nil
	case v1:
		return V1, mounts, nil
	case v2:
		return V2, slices.DeleteFunc(mounts, func(m mount) bool { return !m.v2 }), nil
	}
	return "", nil, errors.New("no cgroup file system is mounted")
}
