// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// HostOptions returns the options of a node that uses the whole machine: its CPUs, memory, swap, PIDs and cgroup version. proc is
// normally os.DirFS("/proc"). The caller sets the huge page sizes and the swap controller, see driver.Driver.Host.
func HostOptions(proc fs.FS) (opts Options, err error) {
	if opts.Node.MemoryCapacity, opts.Node.SwapCapacity, err = readMemory(proc); err != nil {
		return Options{}, err
	}
	if opts.MaxPIDs, err = MaxPIDs(proc); err != nil {
		return Options{}, err
	}
	if opts.Node.CgroupV1, err = isCgroupV1(proc); err != nil {
		return Options{}, err
	}
	opts.Capacity = MachineOptions(runtime.NumCPU(), opts.Node.MemoryCapacity, 0).Capacity
	return opts, nil
}

// MachineOptions returns the options of a node with cgroup v2 that uses a whole machine of this many CPUs, and of this many bytes
// of memory and swap.
func MachineOptions(cpus int, memory, swap int64) (opts Options) {
	opts.Node.MemoryCapacity, opts.Node.SwapCapacity = memory, swap
	opts.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(cpus), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI),
	}
	return opts
}

// isCgroupV1 reports whether the memory controller of the host is in a v1 hierarchy, also on a hybrid host.
func isCgroupV1(proc fs.FS) (bool, error) {
	text, err := fs.ReadFile(proc, "self/mountinfo")
	if err != nil {
		return false, fmt.Errorf("read mounts of cgroups: %w", err)
	}
	found := false
	for line := range bytes.Lines(text) {
		before, after, _ := bytes.Cut(line, []byte(" - "))
		f, kind := bytes.Fields(before), bytes.Fields(after)
		switch {
		case len(f) < 5 || len(kind) == 0:
		case string(kind[0]) == "cgroup" && len(kind) > 2 && slices.Contains(strings.Split(string(kind[2]), ","), "memory"):
			return true, nil
		case string(kind[0]) == "cgroup2":
			found = true
		}
	}
	if !found {
		return false, errors.New("read mounts of cgroups: self/mountinfo has none")
	}
	return false, nil
}

// readMemory returns the size of memory and swap from meminfo in bytes.
func readMemory(proc fs.FS) (memory, swap int64, err error) {
	text, err := fs.ReadFile(proc, "meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("read meminfo: %w", err)
	}
	if memory, err = parseKilobytes(text, "MemTotal:"); err == nil {
		swap, err = parseKilobytes(text, "SwapTotal:")
	}
	return memory, swap, err
}

// parseKilobytes returns the bytes in the line of name in text, for example "MemTotal: 16384256 kB".
func parseKilobytes(text []byte, name string) (int64, error) {
	for line := range bytes.Lines(text) {
		f := bytes.Fields(line)
		if len(f) != 3 || string(f[0]) != name || string(f[2]) != "kB" {
			continue
		}
		if n, err := strconv.ParseInt(string(f[1]), 10, 53); err == nil && n >= 0 {
			return n << 10, nil
		}
	}
	return 0, fmt.Errorf("read meminfo: no line %q with kilobytes", name)
}
