// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"bytes"
	"fmt"
	"io/fs"
	"runtime"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// HostOptions returns the options of a node that is the whole machine: its CPUs, as many as this process may use, its
// memory and swap, and how many processes it can have. On a host proc is os.DirFS("/proc").
func HostOptions(proc fs.FS) (o Options, err error) {
	if o.Node.MemoryCapacity, o.Node.SwapCapacity, err = memoryOf(proc); err != nil {
		return Options{}, err
	}
	if o.MaxPIDs, err = MaxPIDs(proc); err != nil {
		return Options{}, err
	}
	o.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(runtime.NumCPU()), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(o.Node.MemoryCapacity, resource.BinarySI),
	}
	return o, nil
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
