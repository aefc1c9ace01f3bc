// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"os"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/procfs"
)

// clockTick is the unit of CPU times in /proc: 1/100 s on every architecture since Linux 2.6.
const clockTick = 10 * time.Millisecond

// ContainerStats returns the CPU time and the memory of every running container, including its shim. Memory that several
// processes share is counted once per process.
func (r *Runtime) ContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	stats, _, err := r.measureContainers(ctx)
	return stats, wrapError("ListContainerStats", "", err)
}

// SandboxStats returns the usage of every ready sandbox, which is the sum over its running containers. It reports no network
// usage.
func (r *Runtime) SandboxStats(ctx context.Context) ([]cri.SandboxStats, error) {
	containers, snapshot, err := r.measureContainers(ctx)
	if err != nil {
		return nil, wrapError("ListPodSandboxStats", "", err)
	}
	sandboxOf := make(map[string]string, len(snapshot.Containers))
	for _, c := range snapshot.Containers {
		sandboxOf[c.ID] = c.SandboxID
	}
	inside := make(map[string][]cri.ContainerStats)
	for _, c := range containers {
		id := sandboxOf[c.ID]
		inside[id] = append(inside[id], c)
	}
	var all []cri.SandboxStats
	for _, s := range snapshot.Sandboxes {
		if s.State != cri.SandboxReady {
			continue
		}
		stats := cri.SandboxStats{
			ID:          s.ID,
			Pod:         s.Pod,
			Attempt:     s.Attempt,
			Labels:      s.Labels,
			Annotations: s.Annotations,
			Containers:  inside[s.ID],
		}
		var cpu, memory uint64
		for _, c := range stats.Containers {
			cpu += *c.CPU.UsageCoreNanoSeconds
			memory += *c.Memory.UsageBytes
		}
		stats.CPU, stats.Memory = newUsage(snapshot.Time, cpu, memory)
		all = append(all, stats)
	}
	return all, nil
}

// measureContainers returns the usage of every running container, and the list of sandboxes and containers at that time.
func (r *Runtime) measureContainers(ctx context.Context) ([]cri.ContainerStats, cri.Snapshot, error) {
	snapshot, err := r.snapshot(ctx, func(string) bool { return true })
	if err != nil {
		return nil, snapshot, err
	}
	processes, err := procfs.ListProcesses() // one scan for all
	if err != nil {
		return nil, snapshot, err
	}
	byPID := make(map[int]procfs.Process, len(processes))
	for _, p := range processes {
		byPID[p.PID] = p
	}
	tree := procfs.NewTree(processes)
	shims := r.shimPIDs()
	var all []cri.ContainerStats
	for _, c := range snapshot.Containers {
		pid, ok := shims[c.ID]
		if !ok {
			continue
		}
		// The usage of an exited process is included in the usage of the process that reaped it, ultimately the shim.
		sum := byPID[pid]
		for _, p := range tree.Descendants(pid) {
			sum.CPU += p.CPU
			sum.RSS += p.RSS
		}
		stats := cri.ContainerStats{ID: c.ID, Name: c.Name, Attempt: c.Attempt, Labels: c.Labels, Annotations: c.Annotations}
		stats.CPU, stats.Memory = newUsage(snapshot.Time, sum.CPU*uint64(clockTick), sum.RSS*uint64(os.Getpagesize()))
		all = append(all, stats)
	}
	return all, snapshot, nil
}

// shimPIDs returns the process IDs of the running shims. The keys are container IDs.
func (r *Runtime) shimPIDs() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	pids := make(map[string]int, len(r.containers))
	for _, c := range r.containers {
		if c.shim != nil {
			pids[c.ID] = c.shim.PID()
		}
	}
	return pids
}

func newUsage(at time.Time, cpu, memory uint64) (*cri.CPUUsage, *cri.MemoryUsage) {
	return &cri.CPUUsage{Time: at, UsageCoreNanoSeconds: &cpu},
		&cri.MemoryUsage{Time: at, UsageBytes: &memory, WorkingSetBytes: &memory, RSSBytes: &memory}
}
