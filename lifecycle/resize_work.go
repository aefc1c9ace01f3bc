// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// resizeWork is what a worker knows of the resources of its pod. What the runtime was told is in the pod's record; an agent
// that has none reads the containers anew, and at worst tells the runtime once more what it knows.
type resizeWork struct {
	// Of the goroutine of the worker alone.
	now        Resizing    // as of the last look
	of         *corev1.Pod // that was looked at
	key        string      // of the resources that the pod is to have
	keyOf      *corev1.Pod // that it was made from
	generation int64       // of the spec that first had them

	mu    sync.Mutex              // guards all below
	told  map[string]cgroups.Size // to the runtime, by container ID
	sized string                  // key of the resources that the pod's cgroup is for; empty: not known
	err   error                   // of the last attempt
}

// recall takes up what an earlier agent knew.
func (z *resizeWork) recall(known record) {
	z.sized = known.Sized
	for id, note := range known.Sizes {
		if size, ok := parseSize(note); ok {
			z.tell(id, size)
		}
	}
}

// tell takes note of what the runtime was told.
func (z *resizeWork) tell(id string, size cgroups.Size) {
	if z.told == nil {
		z.told = map[string]cgroups.Size{}
	}
	z.told[id] = size
}

// put puts down in a record what the runtime was told.
func (z *resizeWork) put(now *record) {
	z.mu.Lock()
	defer z.mu.Unlock()
	now.Sized, now.Sizes = z.sized, make(map[string]string, len(z.told))
	for id, size := range z.told {
		now.Sizes[id] = noteSize(size)
	}
}

// lookAtResources decides what is to become of the resources of the pod, and keeps that for the plan and the status.
func (w *worker) lookAtResources(pod *corev1.Pod, observed cri.Pod, ending bool) {
	z := &w.resize
	if z.of != pod {
		z.now, z.of = Resizing{Pod: pod}, pod
	}
	if pod == nil || ending || pod.DeletionTimestamp != nil {
		return
	}
	z.now = PlanResize(ResizeState{
		Pod: pod, Observed: observed, Spec: w.r.opts.Spec, Told: w.toldSizes(observed),
		Sized: z.sizedPod(), Fixed: w.r.updater == nil, Admit: w.r.opts.AdmitResize,
	})
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.now.Pod != z.keyOf {
		z.keyOf = z.now.Pod
		if key := resourceKey(z.keyOf); key != z.key {
			z.key, z.generation, z.err = key, pod.Generation, nil
		}
	}
	if z.sized == "" && !z.now.Changed {
		z.sized = z.key
	}
	if len(z.now.Containers) == 0 && (z.sized == z.key || w.r.opts.Cgroups == nil) {
		z.err = nil
	}
	if z.now.Generation = z.generation; z.err != nil {
		z.now.Error = z.err.Error()
	}
}

// resizing returns what there is to say of the resources of a pod, as of the last look at it.
func (w *worker) resizing(pod *corev1.Pod, observed cri.Pod, ending bool) Resizing {
	if w.resize.of != pod {
		w.lookAtResources(pod, observed, ending)
	}
	return w.resize.now
}

// toldSizes returns what the runtime was told of the containers that there are, and forgets the others.
func (w *worker) toldSizes(observed cri.Pod) map[string]cgroups.Size {
	z := &w.resize
	z.mu.Lock()
	defer z.mu.Unlock()
	maps.DeleteFunc(z.told, func(id string, _ cgroups.Size) bool {
		return !slices.ContainsFunc(observed.Containers, func(c cri.Container) bool { return c.ID == id })
	})
	return maps.Clone(z.told)
}

// sizedPod returns what the pod's cgroup is for, where the pod has resources as a whole, or nil.
func (z *resizeWork) sizedPod() *cgroups.Size {
	z.mu.Lock()
	defer z.mu.Unlock()
	whole, _, _ := strings.Cut(z.sized, ";")
	if size, ok := parseSize(whole); ok {
		return &size
	}
	return nil
}

// mayLackLimits tells whether the cgroup of a pod may have limits for other resources than the pod now has.
func (w *worker) mayLackLimits(observed cri.Pod) bool {
	z := &w.resize
	z.mu.Lock()
	defer z.mu.Unlock()
	return w.r.opts.Cgroups != nil && w.r.updater != nil && z.now.Reason == "" && z.sized != z.key && running(observed)
}

// resizePod gives the pod and its running containers the resources that they are to have.
func (w *worker) resizePod(ctx context.Context, pod *corev1.Pod, a *Actions) error {
	if len(a.Resize) == 0 && !a.ResizePod {
		return nil
	}
	r := &resizer{w: w, pod: pod, sandboxID: a.SandboxID, containers: a.Resize}
	err := r.run(ctx)
	if err == nil {
		err = r.verify()
	}
	z := &w.resize
	z.mu.Lock()
	if z.err = err; err == nil {
		z.sized = resourceKey(pod)
	}
	z.mu.Unlock()
	w.note(z.put)
	if err != nil { // and perhaps for long: a quota that an earlier agent left lifted does not wait for that
		err = errors.Join(err, w.limit(ctx, pod))
	}
	return err
}

// resourceKey returns what tells the resources of a pod from others.
func resourceKey(pod *corev1.Pod) string {
	var key strings.Builder
	if pod.Spec.Resources != nil {
		key.WriteString(noteSize(sizeOfPod(pod)))
	}
	for c := range containersOf(&pod.Spec) {
		key.WriteString(";" + c.Name + " " + noteSize(sizeOf(&pod.Spec, c)))
	}
	return key.String()
}

// created takes note of what a container was created with. What the runtime then says of it may differ, by a plugin or by
// how it rounds, and is no reason to resize the container, let alone to start it anew.
func (z *resizeWork) created(id string, size cgroups.Size) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.tell(id, size)
}

// resizer resizes one pod, once. It is the runtime's part in it.
type resizer struct {
	w          *worker
	pod        *corev1.Pod
	sandboxID  string
	containers []Resize
	overhead   *cri.Resources
}

var _ cgroups.Resizer = (*resizer)(nil)

// run resizes the pod with its cgroup or, where the runtime keeps that, the containers alone.
func (r *resizer) run(ctx context.Context) error {
	sandbox, err := podspec.Sandbox(r.pod, 0, r.w.r.opts.Spec)
	if err != nil {
		return err
	}
	r.overhead = sandbox.Overhead
	containers, err := r.measured(ctx)
	if err != nil {
		return err
	}
	if r.w.r.opts.Cgroups != nil {
		return r.w.r.opts.Cgroups.Resize(ctx, r.pod, containers, r)
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
func (r *resizer) verify() error {
	z := &r.w.resize
	z.mu.Lock()
	defer z.mu.Unlock()
	var errs []error
	for _, c := range r.containers {
		if told, ok := z.told[c.ID]; !ok || told != c.To {
			errs = append(errs, fmt.Errorf("resize container %s: the runtime was not told %s", c.Name, noteSize(c.To)))
		}
	}
	return errors.Join(errs...)
}

// lowers reports whether a container gets a limit of memory that is new or less than the one that it has.
func (r *resizer) lowers(c cgroups.ContainerResize) bool {
	from, to := c.From.MemoryLimit, c.To.MemoryLimit
	return to != 0 && bounds(to) && (from == 0 || to < from)
}

// measured returns the containers with the memory that they use, where that has to be known.
func (r *resizer) measured(ctx context.Context) ([]cgroups.ContainerResize, error) {
	containers := make([]cgroups.ContainerResize, len(r.containers))
	var usage map[string]int64
	for i, c := range r.containers {
		containers[i] = cgroups.ContainerResize{Name: c.Name, From: c.From, To: c.To}
		if !r.lowers(containers[i]) {
			continue
		}
		if usage == nil {
			var err error
			if usage, err = r.w.memoryUsage(ctx); err != nil {
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

// memoryUsage returns the bytes that the running containers of the runtime use, by ID.
func (w *worker) memoryUsage(ctx context.Context) (map[string]int64, error) {
	usage := map[string]int64{}
	if w.r.stats == nil {
		return usage, nil
	}
	stats, err := w.r.stats.ContainerStats(ctx)
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
func (r *resizer) ResizeSandbox(ctx context.Context, limits cgroups.Resources) error {
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
func (r *resizer) updateSandbox(ctx context.Context, c *cri.Resources) error {
	err := r.w.r.updater.UpdateSandbox(ctx, r.sandboxID, r.overhead, c)
	if errors.Is(err, errors.ErrUnsupported) || err != nil && strings.Contains(err.Error(), "not implemented") {
		return nil
	}
	return err
}

// ResizeContainer gives a running container what it shall have.
func (r *resizer) ResizeContainer(ctx context.Context, name string, size cgroups.Size) error {
	resize := r.containers[slices.IndexFunc(r.containers, func(c Resize) bool { return c.Name == name })]
	c := withSize(containerNamed(&r.pod.Spec, name), size)
	config, err := podspec.Resources(r.pod, &c, r.w.r.opts.Spec)
	if err != nil {
		return err
	}
	if size.CPULimit == 0 && resize.From.CPULimit != 0 {
		config.CPUQuota = cgroups.Unlimited // zero would leave it as it is
	}
	if size.MemoryLimit == 0 && resize.From.MemoryLimit != 0 {
		config.MemoryLimit = cgroups.Unlimited
	}
	if _, slow := config.Unified[memoryHigh]; !slow && config.Unified != nil {
		config.Unified[memoryHigh] = "max" // likewise, and the container would be slowed down where it was before
	}
	r.w.log("resize container", "container", name, "id", resize.ID, "resources", noteSize(size))
	note := map[string]string{AnnotationResources: noteSize(size)}
	if err := r.w.r.updater.UpdateContainer(ctx, resize.ID, config, note); err != nil {
		return err
	}
	z := &r.w.resize
	z.mu.Lock()
	z.tell(resize.ID, size)
	z.mu.Unlock()
	r.w.note(z.put)
	return nil
}
