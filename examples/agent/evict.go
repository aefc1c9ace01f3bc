// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/podevict"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// Reclaim has the kernel take memory from caches, or removes what terminated pods have left, and then images. How many inodes an
// image has nobody knows: then all that are unused go.
func (p *pressure) Reclaim(ctx context.Context, r eviction.Reclaim) (int64, error) {
	if r.Kind == eviction.Cache {
		freed, err := p.machine.Reclaim(ctx, "", uint64(max(r.Want, 0)))
		return int64(freed), err
	}
	var errs []error
	freed := uint64(0)
	if r.Kind&eviction.Containers != 0 {
		before := p.held()
		errs = append(errs, p.Trim(ctx))
		if p.held() < before {
			freed = 1 // how much nobody knows yet: the runtime gives it back later
		}
	}
	if r.Kind&eviction.Images != 0 && p.unused != nil {
		want := uint64(gc.All)
		if r.Signal.Resource() == eviction.EphemeralStorage {
			want = uint64(max(r.Want, 0))
		}
		of, err := p.unused.Reclaim(ctx, want)
		freed, errs = max(freed, of), append(errs, err)
	}
	return int64(min(freed, math.MaxInt64)), errors.Join(errs...)
}

// held returns how many sandboxes and containers of pods the runtime has.
func (p *pressure) held() (n int) {
	pods, _ := p.generator.Pods()
	for i := range pods {
		n += len(pods[i].Sandboxes) + len(pods[i].Containers)
	}
	return n
}

// watch has the node observed as soon as anything waits for memory, where the kernel tells.
func (p *pressure) watch(ctx context.Context) error {
	trigger := cgroups.Trigger{File: "memory.pressure", Stall: 50 * time.Millisecond, Window: 2 * time.Second}
	err := p.machine.Watch(ctx, "", []cgroups.Trigger{trigger}, func(cgroups.Trigger) {
		p.log.Debug("something waits for memory")
		p.evictor.Wake()
	})
	if err != nil {
		p.log.Info("pressure of memory is not watched", "error", err)
	}
	return nil
}

// Evict ends a pod and tells why.
func (p *pressure) Evict(ctx context.Context, e eviction.Eviction) error {
	state, ok := p.Pod(e.UID)
	if !ok || state.Spec == nil {
		return fmt.Errorf("evict pod %s: %w", e.Name, cri.ErrNotFound)
	}
	p.mu.Lock()
	why := podevict.Explain(e, state.Spec, p.last)
	p.mu.Unlock()
	p.annotated(state.Pod, lifecycle.Event{Type: corev1.EventTypeWarning, Reason: why.Reason, Message: why.Message}, why.Annotations)
	return p.Reconciler.Evict(ctx, e.UID, lifecycle.Eviction{
		Reason: why.Reason, Message: why.Message, Conditions: why.Conditions, Grace: e.Grace, Hold: p.cluster == nil, // those of a cluster fail, and somebody makes others
	})
}

// LimitMemory keeps a pod from using more memory than it has.
func (p *pressure) LimitMemory(ctx context.Context, uid string) error {
	path, err := p.path(uid)
	if err != nil {
		return err
	}
	stats, err := p.driver.Sample(ctx, path, "", cgroups.PartMemory)
	if err != nil {
		return err
	}
	high := int64(stats.Memory.Current)
	return p.driver.Apply(ctx, path, cgroups.Resources{MemoryHigh: &high})
}

// Kill ends all processes of a pod.
func (p *pressure) Kill(ctx context.Context, uid string) error {
	path, err := p.path(uid)
	if err != nil {
		return err
	}
	return p.driver.Kill(ctx, path)
}

// path returns the cgroup of a pod.
func (p *pressure) path(uid string) (cgroups.Path, error) {
	state, ok := p.Pod(uid)
	if !ok || state.Spec == nil {
		return "", fmt.Errorf("cgroup of pod %s: %w", uid, cri.ErrNotFound)
	}
	return p.tree.Path(state.Spec), nil
}

// yetToBegin reports whether a pod has no worker yet that could evict it.
func (p *pressure) yetToBegin(pod *corev1.Pod) bool {
	_, ok := p.Pod(string(pod.UID))
	return !ok
}
