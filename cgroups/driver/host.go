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

// Mode is how a host arranges its cgroups.
type Mode string

const (
	// V2 is one tree with all controllers.
	V2 Mode = "v2"
	// V1 is one tree for each controller, or for a few together.
	V1 Mode = "v1"
	// Hybrid is V1 with a tree of v2 beside it that has no controllers.
	Hybrid Mode = "hybrid"
)

// Host is what [Open] found.
type Host struct {
	Mode Mode
	// Dirs is the directory that the root of the driver is, for each controller by its name, such as "memory".
	Dirs map[string]string
	// Missing is what limits the driver goes without, sorted: controllers of "cpu", "cpuset", "hugetlb", "memory" and
	// "pids", and "swap" where the kernel does not count it. Limits that need one of them are skipped.
	Missing []string
	// HugepageSizes is what the kernel offers, such as "2MB"; with "hugetlb" missing they are there, but not limited.
	HugepageSizes []string
	// Pressure tells that the kernel measures stalls (PSI), which it does for each cgroup on v2 only.
	Pressure bool
}

// HasController reports whether the driver has a controller, or "swap".
func (h Host) HasController(controller string) bool {
	if controller == swap {
		return h.HasController("memory") && !slices.Contains(h.Missing, swap)
	}
	return h.Dirs[controller] != ""
}

// swap stands for the accounting of swap in Host.Missing.
const swap = "swap"

// lacks fills Missing, and returns an error where the driver may not go without.
func (h *Host) lacks(countsSwap bool, optional []string) error {
	h.Missing = nil
	for _, c := range []string{"cpu", "cpuset", "hugetlb", "memory", "pids"} {
		if h.HasController(c) {
			continue
		}
		h.Missing = append(h.Missing, c)
		if (c == "cpu" || c == "pids") && !slices.Contains(optional, c) {
			return fmt.Errorf("controller %s is neither at the root of the tree nor in Options.OptionalControllers", c)
		}
	}
	if !countsSwap || !h.HasController("memory") {
		h.Missing = append(h.Missing, swap)
	}
	return nil
}

// A mount is a line of mountinfo that shows cgroups.
type mount struct {
	device      string // major:minor: mounts of one tree have the same
	dir         string
	v2          bool
	controllers []string // of v1; a tree without any has its name, such as "name=systemd"
}

// parseMounts reads /proc/<pid>/mountinfo, see proc_pid_mountinfo(5). Of a tree that is mounted more than once it
// keeps the mount with the shortest path, as the kubelet does.
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
		case len(m.dir) < len(mounts[same].dir):
			mounts[same] = m
		}
	}
	return mounts
}

// parseMount reads one line: six fields and optional ones, a hyphen, the type, the source and the options of the file
// system, which on v1 name the controllers.
func parseMount(line string) (mount, bool) {
	before, after, ok := strings.Cut(line, " - ")
	left, right := strings.Fields(before), strings.Fields(after)
	if !ok || len(left) < 6 || len(right) < 3 {
		return mount{}, false
	}
	m := mount{device: left[2], dir: unescape(left[4]), v2: right[0] == "cgroup2"}
	if !m.v2 && right[0] != "cgroup" {
		return mount{}, false
	}
	for option := range strings.SplitSeq(right[2], ",") {
		if !m.v2 && (isController(option) || strings.HasPrefix(option, "name=")) {
			m.controllers = append(m.controllers, option)
		}
	}
	return m, m.v2 || len(m.controllers) > 0
}

// isController tells the controllers of v1 from other options of a mount.
func isController(option string) bool {
	switch option {
	case "blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc", "net_cls", "net_prio",
		"perf_event", "pids", "rdma":
		return true
	}
	return false
}

// unescape undoes what the kernel does to the four characters that would break a line of mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// arrange tells the mode from the mounts, and returns those to work on: a single controller of v1 is enough to rule out
// v2, since a controller is only ever in one of both, and beside v2 a tree of v1 has nothing but a name.
func arrange(mounts []mount) (Mode, []mount, error) {
	slices.SortFunc(mounts, func(a, b mount) int { return cmp.Compare(a.dir, b.dir) })
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
