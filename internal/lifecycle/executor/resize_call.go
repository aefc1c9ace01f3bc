// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/containers"
	"github.com/seed81659283/nodeagent/internal/lifecycle/resize"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// resizeCall is one attempt to resize a pod. As a [cgroups.Resizer] it sends the new limits to the runtime when the pod cgroup
// has room for them.
type resizeCall struct {
	resizer    *Resizer
	node       *Node
	pod        *corev1.Pod
	sandboxID  string
	containers []resize.Container
	overhead   *cri.Resources
}

var _ cgroups.Resizer = (*resizeCall)(nil)

// runResize resizes the pod cgroup and the containers, or the sandbox and the containers if the runtime manages the cgroups.
func (r *resizeCall) runResize(ctx context.Context) error {
	// Unlike the sandbox config, the resources need no resolv.conf of the host: a resize succeeds while that is missing.
	resources, overhead := podspec.SandboxResources(r.pod, r.node.Spec)
	r.overhead = overhead
	containers, err := r.containerResizes(ctx)
	if err != nil {
		return err
	}
	if r.node.Cgroups != nil {
		return r.node.Cgroups.Resize(ctx, r.pod, containers, r)
	}
	for _, c := range containers {
		if r.lowersMemoryLimit(c) && c.MemoryUsage >= c.To.MemoryLimit {
			return fmt.Errorf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below current usage (%d)",
				c.Name, c.To.MemoryLimit, c.MemoryUsage)
		}
	}
	if err := r.updateSandbox(ctx, resources); err != nil {
		return err
	}
	for _, c := range containers {
		if err := r.ResizeContainer(ctx, c.Name, c.To); err != nil {
			return fmt.Errorf("resize container %s: %w", c.Name, err)
		}
	}
	return nil
}

// checkAllSent returns an error if runResize has not sent the size of a container to the runtime.
func (r *resizeCall) checkAllSent() error {
	var errs []error
	for _, c := range r.containers {
		if !r.resizer.state.isLastSent(c.ID, c.To) {
			// Without the error, the resize would count as complete, and each later sync would plan it again.
			errs = append(errs, fmt.Errorf("resize container %s: the runtime did not get %s", c.Name, resize.FormatSize(c.To)))
		}
	}
	return errors.Join(errs...)
}

// lowersMemoryLimit reports whether the resize c lowers the memory limit of a container. A first limit for a container
// without a memory limit counts as a lower limit.
func (r *resizeCall) lowersMemoryLimit(c cgroups.ContainerResize) bool {
	from, to := c.From.MemoryLimit, c.To.MemoryLimit
	return to != 0 && resize.IsLimit(to) && (from == 0 || to < from)
}

// containerResizes returns the planned resize of each container. A resize that lowers the memory limit includes the
// measured memory usage of the container.
func (r *resizeCall) containerResizes(ctx context.Context) ([]cgroups.ContainerResize, error) {
	containers := make([]cgroups.ContainerResize, len(r.containers))
	var usage map[string]int64
	for i, c := range r.containers {
		containers[i] = cgroups.ContainerResize{Name: c.Name, From: c.From, To: c.To}
		if !r.lowersMemoryLimit(containers[i]) {
			continue
		}
		if usage == nil {
			var err error
			if usage, err = r.memoryUsage(ctx); err != nil {
				return nil, err
			}
		}
		used, ok := usage[c.ID]
		if !ok {
			return nil, fmt.Errorf("cannot decrease memory limits: missing container %q memory usage", c.Name)
		}
		containers[i].MemoryUsage = used
	}
	return containers, nil
}

// memoryUsage returns the memory usage of the containers in bytes, by container ID, possibly also of other pods.
func (r *resizeCall) memoryUsage(ctx context.Context) (map[string]int64, error) {
	usage := map[string]int64{}
	var stats []cri.ContainerStats
	var err error
	switch {
	case r.node.podStats != nil:
		stats, err = r.node.podStats.PodContainerStats(ctx, r.sandboxID)
	case r.node.stats != nil:
		stats, err = r.node.stats.ContainerStats(ctx)
	}
	if err != nil {
		return nil, err
	}
	for i := range stats {
		if m := stats[i].Memory; m != nil && m.UsageBytes != nil {
			usage[stats[i].ID] = int64(*m.UsageBytes)
		}
	}
	return usage, nil
}

// ResizeSandbox sends new sandbox resources to the runtime. These are limits, the limits of the pod cgroup, minus the
// overhead of the pod.
func (r *resizeCall) ResizeSandbox(ctx context.Context, limits cgroups.Resources) error {
	c := cri.Resources{CPUShares: int64(limits.CPUShares), CPUQuota: limits.CPUQuota, CPUPeriod: int64(limits.CPUPeriod)}
	if limits.MemoryMax != nil {
		c.MemoryLimit = *limits.MemoryMax
	}
	if o := r.overhead; o != nil {
		milli := cgroups.SharesToMilli(limits.CPUShares) - cgroups.SharesToMilli(uint64(o.CPUShares))
		c.CPUShares = int64(cgroups.CPUShares(milli))
		if c.CPUQuota > 0 {
			c.CPUQuota -= o.CPUQuota
		}
		if c.MemoryLimit > 0 {
			c.MemoryLimit -= o.MemoryLimit
		}
	}
	return r.updateSandbox(ctx, &c)
}

// updateSandbox sends the resources of the sandbox to a runtime that supports this call.
func (r *resizeCall) updateSandbox(ctx context.Context, resources *cri.Resources) error {
	// A runtime needs them if it runs pods in virtual machines.
	err := r.node.updater.UpdateSandbox(ctx, r.sandboxID, r.overhead, resources)
	if errors.Is(err, errors.ErrUnsupported) || err != nil && strings.Contains(err.Error(), "not implemented") {
		return nil
	}
	return err
}

// ResizeContainer resizes the running container with this name through the runtime. It then stores size in the persistent
// record of the pod.
func (r *resizeCall) ResizeContainer(ctx context.Context, name string, size cgroups.ContainerSize) error {
	resized := r.containers[slices.IndexFunc(r.containers, func(c resize.Container) bool { return c.Name == name })]
	c := resize.WithSize(containers.Named(&r.pod.Spec, name), size)
	config, err := podspec.Resources(r.pod, &c, r.node.Spec)
	if err != nil {
		return err
	}
	if size.CPULimit == 0 && resized.From.CPULimit != 0 {
		config.CPUQuota = cgroups.Unlimited // zero would keep the current quota
	}
	if size.MemoryLimit == 0 && resized.From.MemoryLimit != 0 {
		config.MemoryLimit = cgroups.Unlimited
	}
	if _, slow := config.Unified[resize.MemoryHigh]; !slow && config.Unified != nil {
		config.Unified[resize.MemoryHigh] = "max" // otherwise the old throttling limit stays
	}
	r.resizer.reporter.Log("resize container", "container", name, "id", resized.ID, "resources", resize.FormatSize(size))
	note := map[string]string{resize.AnnotationResources: resize.FormatSize(size)}
	if err := r.node.updater.UpdateContainer(ctx, resized.ID, config, note); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			r.node.noUpdates.Store(true) // this resize and later resizes are infeasible
		}
		return err
	}
	r.resizer.state.setSentSize(resized.ID, size)
	r.resizer.reporter.UpdateRecord(r.resizer.record, r.resizer.WriteRecord)
	return nil
}
