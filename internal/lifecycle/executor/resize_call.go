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

// resizeCall resizes one pod, once. It is the runtime's part in it.
type resizeCall struct {
	resizer    *Resizer
	node       *Node
	pod        *corev1.Pod
	sandboxID  string
	containers []resize.Container
	overhead   *cri.Resources
}

var _ cgroups.Resizer = (*resizeCall)(nil)

// run resizes the pod with its cgroup or, where the runtime keeps that, the containers alone.
func (r *resizeCall) run(ctx context.Context) error {
	sandbox, err := podspec.Sandbox(r.pod, 0, r.node.Spec)
	if err != nil {
		return err
	}
	r.overhead = sandbox.Overhead
	containers, err := r.measured(ctx)
	if err != nil {
		return err
	}
	if r.node.Cgroups != nil {
		return r.node.Cgroups.Resize(ctx, r.pod, containers, r)
	}
	for _, c := range containers {
		if r.lowers(c) && c.MemoryUsage >= c.To.MemoryLimit {
			return fmt.Errorf("cannot decrease memory limits: attempting to set container %q memory limit (%d) below current usage (%d)",
				c.Name, c.To.MemoryLimit, c.MemoryUsage)
		}
	}
	if err := r.updateSandbox(ctx, sandbox.Resources); err != nil {
		return err
	}
	for _, c := range containers {
		if err := r.ResizeContainer(ctx, c.Name, c.To); err != nil {
			return fmt.Errorf("resize container %s: %w", c.Name, err)
		}
	}
	return nil
}

// verify returns an error where all has succeeded and the runtime was not told of a container. Without it the same would
// be done again at once, and without end.
func (r *resizeCall) verify() error {
	var errs []error
	for _, c := range r.containers {
		if !r.resizer.state.wasTold(c.ID, c.To) {
			errs = append(errs, fmt.Errorf("resize container %s: the runtime was not told %s", c.Name, resize.FormatSize(c.To)))
		}
	}
	return errors.Join(errs...)
}

// lowers reports whether a container gets a limit of memory that is new or less than the one that it has.
func (r *resizeCall) lowers(c cgroups.ContainerResize) bool {
	from, to := c.From.MemoryLimit, c.To.MemoryLimit
	return to != 0 && resize.IsLimit(to) && (from == 0 || to < from)
}

// measured returns the containers with the memory that they use, where that has to be known.
func (r *resizeCall) measured(ctx context.Context) ([]cgroups.ContainerResize, error) {
	containers := make([]cgroups.ContainerResize, len(r.containers))
	var usage map[string]int64
	for i, c := range r.containers {
		containers[i] = cgroups.ContainerResize{Name: c.Name, From: c.From, To: c.To}
		if !r.lowers(containers[i]) {
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

// memoryUsage returns the bytes that the running containers of the pod use, by ID, and of other pods where the runtime lists no less.
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

// ResizeSandbox tells the runtime the limits of the pod's cgroup, without the overhead.
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

// updateSandbox does without what a runtime does not have: it is for those that size machines by it. containerd 2.2 says
// that it has not in words alone.
func (r *resizeCall) updateSandbox(ctx context.Context, c *cri.Resources) error {
	err := r.node.updater.UpdateSandbox(ctx, r.sandboxID, r.overhead, c)
	if errors.Is(err, errors.ErrUnsupported) || err != nil && strings.Contains(err.Error(), "not implemented") {
		return nil
	}
	return err
}

// ResizeContainer gives a running container what it shall have.
func (r *resizeCall) ResizeContainer(ctx context.Context, name string, size cgroups.ContainerSize) error {
	resized := r.containers[slices.IndexFunc(r.containers, func(c resize.Container) bool { return c.Name == name })]
	c := resize.WithSize(containers.Named(&r.pod.Spec, name), size)
	config, err := podspec.Resources(r.pod, &c, r.node.Spec)
	if err != nil {
		return err
	}
	if size.CPULimit == 0 && resized.From.CPULimit != 0 {
		config.CPUQuota = cgroups.Unlimited // zero would leave it as it is
	}
	if size.MemoryLimit == 0 && resized.From.MemoryLimit != 0 {
		config.MemoryLimit = cgroups.Unlimited
	}
	if _, slow := config.Unified[resize.MemoryHigh]; !slow && config.Unified != nil {
		config.Unified[resize.MemoryHigh] = "max" // likewise, and the container would be slowed down where it was before
	}
	r.resizer.reporter.Log("resize container", "container", name, "id", resized.ID, "resources", resize.FormatSize(size))
	note := map[string]string{resize.AnnotationResources: resize.FormatSize(size)}
	if err := r.node.updater.UpdateContainer(ctx, resized.ID, config, note); err != nil {
		return err
	}
	r.resizer.state.tell(resized.ID, size)
	r.resizer.reporter.Note(r.resizer.record, r.resizer.Put)
	return nil
}
