// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
)

// Version returns the runtime name "critest" and versions that the kubelet accepts.
func (r *Runtime) Version(ctx context.Context) (v cri.Version, err error) {
	call := r.recordCall(Call{Op: "Version"})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Version{}, err
	}
	return cri.Version{Version: "0.1.0", RuntimeName: "critest", RuntimeVersion: "1.0.0", RuntimeAPIVersion: "v1"}, nil
}

// Status returns the result of Options.Status. If that is nil, it returns a status in which all conditions are true.
func (r *Runtime) Status(ctx context.Context) (s cri.Status, err error) {
	call := r.recordCall(Call{Op: "Status"})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return cri.Status{}, err
	}
	if r.opts.Status != nil {
		return r.opts.Status(), nil
	}
	return cri.Status{
		Conditions: []cri.Condition{
			{Type: cri.ConditionRuntimeReady, Status: true},
			{Type: cri.ConditionNetworkReady, Status: true},
		},
		Handlers: []cri.RuntimeHandler{{RecursiveReadOnlyMounts: true, UserNamespaces: true}},
		Features: cri.RuntimeFeatures{SupplementalGroupsPolicy: true},
	}, nil
}

// CgroupDriver returns cgroupfs, as for all runtimes of this package.
func (r *Runtime) CgroupDriver(ctx context.Context) (d cri.CgroupDriver, err error) {
	call := r.recordCall(Call{Op: "RuntimeConfig"})
	defer r.recordResult(call, &err)
	return cri.CgroupDriverCgroupfs, ctx.Err()
}

// ContainerStats returns the stats of every running container, from Options.Usage.
func (r *Runtime) ContainerStats(ctx context.Context) (stats []cri.ContainerStats, err error) {
	call := r.recordCall(Call{Op: "ListContainerStats"})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage(func(*container) bool { return true }), nil
}

// PodContainerStats returns the stats of every running container of one sandbox, from Options.Usage.
func (r *Runtime) PodContainerStats(ctx context.Context, sandboxID string) (stats []cri.ContainerStats, err error) {
	call := r.recordCall(Call{Op: "ListContainerStats", ID: sandboxID})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.usage(func(c *container) bool { return c.SandboxID == sandboxID }), nil
}

// SandboxStats returns the stats of every ready sandbox. These consist of the usage of its running containers, from
// Options.Usage. The sandbox itself has no usage.
func (r *Runtime) SandboxStats(ctx context.Context) (stats []cri.SandboxStats, err error) {
	call := r.recordCall(Call{Op: "ListPodSandboxStats"})
	defer r.recordResult(call, &err)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sb := range r.sandboxes {
		if sb.State != cri.SandboxReady {
			continue
		}
		stats = append(stats, cri.SandboxStats{
			ID: sb.ID, Pod: sb.Pod, Attempt: sb.Attempt, Labels: sb.Labels, Annotations: sb.Annotations,
			Containers: r.usage(func(c *container) bool { return c.SandboxID == sb.ID }),
		})
	}
	return stats, nil
}

// usage returns the stats of each running container for which match returns true. [Options.Usage] supplies them. r.mu is
// held.
func (r *Runtime) usage(match func(*container) bool) []cri.ContainerStats {
	var stats []cri.ContainerStats
	for _, c := range r.containers {
		if c.State != cri.ContainerRunning || !match(c) {
			continue
		}
		var s cri.ContainerStats
		if r.opts.Usage != nil {
			s = r.opts.Usage(c.Container)
		}
		s.ID, s.Name, s.Attempt, s.Labels, s.Annotations = c.ID, c.Name, c.Attempt, c.Labels, c.Annotations
		stats = append(stats, s)
	}
	return stats
}
