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

// HostOptions returns the options of a node that is the whole machine: its CPUs, as many as this process may use, its
// memory and swap, how many processes it can have, and whether it has cgroup v1. On a host proc is os.DirFS("/proc"). Sizes of huge
// pages, and whether there is a controller for swap, are not in /proc: driver.Driver.Host has them.
func HostOptions(proc fs.FS) (o Options, err error) {
	if o.Node.MemoryCapacity, o.Node.SwapCapacity, err = memoryOf(proc); err != nil {
		return Options{}, err
	}
	if o.MaxPIDs, err = MaxPIDs(proc); err != nil {
		return Options{}, err
	}
	if o.Node.CgroupV1, err = isCgroupV1(proc); err != nil {
		return Options{}, err
	}
	o.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(o.Node.MemoryCapacity, resource.BinarySI),
	}
	return o, nil
}

// isCgroupV1 reports whether the controllers of the host are those of cgroup v1, also where v2 is mounted below them.
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

// memoryOf returns the bytes of memory and of swap.
func memoryOf(proc fs.FS) (memory, swap int64, err error) {
	text, err := fs.ReadFile(proc, "meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("read meminfo: %w", err)
	}
	if memory, err = kilobytes(text, "MemTotal:"); err == nil {
		swap, err = kilobytes(text, "SwapTotal:")
	}
	return memory, swap, err
}

// kilobytes returns the bytes of a line such as "MemTotal:       16384256 kB".
func kilobytes(text []byte, name string) (int64, error) {
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
