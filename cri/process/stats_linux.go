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

// tick is the unit of CPU times in /proc: the kernel has shown hundredths of a second on every architecture since 2.6.
const tick = 10 * time.Millisecond

// ContainerStats returns the CPU time and memory of every running container, its shim included. Memory that processes
// share is counted for each of them.
func (r *Runtime) ContainerStats(ctx context.Context) ([]cri.ContainerStats, error) {
	stats, _, err := r.stats(ctx)
	return stats, fail("ListContainerStats", "", err)
}

// SandboxStats returns the sums over the containers of every ready sandbox. The network is the host's and not told.
func (r *Runtime) SandboxStats(ctx context.Context) ([]cri.SandboxStats, error) {
	containers, snapshot, err := r.stats(ctx)
	if err != nil {
		return nil, fail("ListPodSandboxStats", "", err)
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
		stats.CPU, stats.Memory = usage(snapshot.Time, cpu, memory)
		all = append(all, stats)
	}
	return all, nil
}

// stats measures the running containers with one pass over /proc.
func (r *Runtime) stats(ctx context.Context) ([]cri.ContainerStats, cri.Snapshot, error) {
	snapshot, err := r.snapshot(ctx, func(string) bool { return true })
	if err != nil {
		return nil, snapshot, err
	}
	processes, err := procfs.All()
	if err != nil {
		return nil, snapshot, err
	}
	byPID := make(map[int]procfs.Process, len(processes))
	for _, p := range processes {
		byPID[p.PID] = p
	}
	tree := procfs.NewTree(processes)
	shims := r.shims()
	var all []cri.ContainerStats
	for _, c := range snapshot.Containers {
		pid, ok := shims[c.ID]
		if !ok {
			continue
		}
		// What has ended counts through whoever waited for it, in the end the shim.
		sum := byPID[pid]
		for _, p := range tree.Descendants(pid) {
			sum.CPU += p.CPU
			sum.RSS += p.RSS
		}
		stats := cri.ContainerStats{ID: c.ID, Name: c.Name, Attempt: c.Attempt, Labels: c.Labels, Annotations: c.Annotations}
		stats.CPU, stats.Memory = usage(snapshot.Time, sum.CPU*uint64(tick), sum.RSS*uint64(os.Getpagesize()))
		all = append(all, stats)
	}
	return all, snapshot, nil
}

// shims returns the process IDs of the shims that live, by container.
func (r *Runtime) shims() map[string]int {
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

func usage(at time.Time, cpu, memory uint64) (*cri.CPUUsage, *cri.MemoryUsage) {
	return &cri.CPUUsage{Time: at, UsageCoreNanoSeconds: &cpu},
		&cri.MemoryUsage{Time: at, UsageBytes: &memory, WorkingSetBytes: &memory, RSSBytes: &memory}
}
