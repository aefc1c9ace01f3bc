// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podevict

import (
	"context"
	"errors"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/lifecycle/podevents"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
)

// Reclaim frees the requested resource and returns the freed amount. For memory, the kernel reclaims caches. For a disk, it
// removes the containers of terminated pods, and then as many unused images as necessary. If inodes are missing, it removes
// all unused images. The unknown amount that removed containers free counts as 1.
func (n *Node) Reclaim(ctx context.Context, request eviction.Reclaim) (int64, error) {
	if request.Kind == eviction.ReclaimCache {
		if n.opts.Machine == nil {
			return 0, nil
		}
		freed, err := n.opts.Machine.Reclaim(ctx, "", uint64(max(request.Missing, 0)))
		return int64(min(freed, math.MaxInt64)), err
	}
	var errs []error
	freed := uint64(0)
	if request.Kind&eviction.ReclaimContainers != 0 {
		before := n.countObjects()
		errs = append(errs, n.opts.Pods().RemoveTerminatedContainers(ctx))
		if n.countObjects() < before {
			freed = 1 // the runtime frees their layers later, so the amount is unknown
		}
	}
	if request.Kind&eviction.ReclaimImages != 0 && n.opts.Images != nil {
		want := uint64(math.MaxUint64)
		if request.Signal.Resource() == eviction.EphemeralStorage {
			want = uint64(max(request.Missing, 0))
		}
		removed, err := n.opts.Images.Reclaim(ctx, want)
		freed, errs = max(freed, removed), append(errs, err)
	}
	return int64(min(freed, math.MaxInt64)), errors.Join(errs...)
}

// countObjects returns the number of pod sandboxes and containers in the runtime. It returns zero if NodeOptions.RuntimePods
// is nil.
func (n *Node) countObjects() (count int) {
	if n.opts.RuntimePods == nil {
		return 0
	}
	pods, _ := n.opts.RuntimePods()
	for i := range pods {
		count += len(pods[i].Sandboxes) + len(pods[i].Containers)
	}
	return count
}

// Evict records the eviction event, evicts the pod, and returns when the pod has terminated. The event and the pod status
// name the containers that use more of the resource than they request.
func (n *Node) Evict(ctx context.Context, victim eviction.Eviction) error {
	state, ok := n.opts.Pods().Pod(victim.UID)
	if !ok || state.Spec == nil {
		return fmt.Errorf("evict pod %s: %w", victim.Name, cri.ErrNotFound)
	}
	n.mu.Lock()
	why := Explain(victim, state.Spec, n.last)
	n.mu.Unlock()
	if n.opts.Event != nil {
		n.opts.Event(state.Pod, podevents.Event{Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message}, why.Annotations)
	}
	podEviction := podstatus.Eviction{Reason: why.Reason, Message: why.Message, Conditions: why.Conditions, Grace: victim.Grace, Temporary: n.opts.Hold}
	if err := n.opts.Pods().Evict(ctx, victim.UID, podEviction); err != nil {
		return err
	}
	if podEviction.IsTemporary(state.Spec) {
		n.mu.Lock()
		n.evicted[victim.UID] = true
		n.mu.Unlock()
	}
	return nil
}

// LimitMemory sets memory.high of the pod's cgroup to its current memory usage. The kernel then slows the pod down if it
// needs more memory.
func (n *Node) LimitMemory(ctx context.Context, uid string) error {
	path, err := n.cgroupPath(uid)
	if err != nil {
		return err
	}
	stats, err := n.opts.Cgroups.Sample(ctx, path, "", cgroups.PartMemory)
	if err != nil {
		return err
	}
	high := int64(min(stats.Memory.Current, math.MaxInt64))
	return n.opts.Cgroups.Apply(ctx, path, cgroups.Resources{MemoryHigh: &high})
}

// Kill kills all processes in the pod's cgroup. It does not call the runtime, which may hang.
func (n *Node) Kill(ctx context.Context, uid string) error {
	path, err := n.cgroupPath(uid)
	if err != nil {
		return err
	}
	return n.opts.Cgroups.Kill(ctx, path)
}

// cgroupPath returns the path of the pod's cgroup. It returns an error if NodeOptions.Cgroups is nil, or if
// NodeOptions.Pods has no pod with this UID.
func (n *Node) cgroupPath(uid string) (cgroups.Path, error) {
	if n.opts.Cgroups == nil {
		return "", fmt.Errorf("cgroup of pod %s: NodeOptions.Cgroups is nil: %w", uid, errors.ErrUnsupported)
	}
	state, ok := n.opts.Pods().Pod(uid)
	if !ok || state.Spec == nil {
		return "", fmt.Errorf("cgroup of pod %s: %w", uid, cri.ErrNotFound)
	}
	return n.opts.Path(state.Spec), nil
}
