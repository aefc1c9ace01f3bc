// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed81659283/nodeagent/cri"
)

// RemoveTerminatedContainers removes the containers, logs and sandboxes of all terminated and temporarily evicted pods that
// a source still lists. An agent calls it, for example, when the disk is full. It returns when they are removed or ctx ends.
// If ctx ends, the removal continues, and the error names the remaining pods. Statuses and restart counts remain in the
// directory Dirs.Pods. If Dirs.Pods is empty and Dirs.LoseStatuses is false, it returns an error and removes nothing.
func (r *Reconciler) RemoveTerminatedContainers(ctx context.Context) error {
	if r.opts.Dirs.Pods == "" && !r.opts.Dirs.LoseStatuses {
		return errors.New("remove terminated containers: Options.Dirs.Pods or LoseStatuses: required: without Pods, statuses are lost with the containers")
	}
	if err := r.awaitRun(ctx); err != nil {
		return fmt.Errorf("remove terminated containers: %w", err)
	}
	if r.hasRunReturned() {
		return errors.New("remove terminated containers: Reconciler.Run has returned")
	}
	r.mu.Lock()
	pods := slices.DeleteFunc(slices.Collect(maps.Values(r.workers)), func(w *worker) bool { return !w.shared.isTerminal() && w.record.Get().Eviction == nil })
	r.mu.Unlock()
	done, errs := make([]<-chan struct{}, len(pods)), make([]error, len(pods))
	for i, w := range pods {
		done[i] = w.mailbox.RequestRuntimeCleanup()
	}
	for i, w := range pods {
		errs[i] = r.awaitRemoval(ctx, w, done[i])
	}
	return errors.Join(errs...)
}

// awaitRemoval waits until done, when the runtime has no container or sandbox of the worker's pod. It returns an error if ctx
// ends or Run returns first.
func (r *Reconciler) awaitRemoval(ctx context.Context, podWorker *worker, done <-chan struct{}) error {
	var why error
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		why = errors.Join(ctx.Err(), r.lastErrorOf(podWorker))
	case <-r.runReturned:
		why = errors.New("Reconciler.Run has returned")
	}
	select {
	case <-done:
		return nil
	default:
		return fmt.Errorf("remove terminated containers of pod %s/%s: %w", podWorker.id.Namespace, podWorker.id.Name, why)
	}
}

// IsManaged reports whether garbage collection must keep the containers and files of the pod with this UID: a source lists the
// pod, or the Reconciler is removing it. It returns true for every UID while the list of pods is incomplete, for example before
// Run.
func (r *Reconciler) IsManaged(uid string) bool {
	pods, err := r.observer.Pods()
	r.mu.Lock()
	defer r.mu.Unlock()
	desired := r.desiredPods()
	if err != nil || !r.claimed || r.workers[uid] != nil || !desired.IsComplete() || desired.Pod(uid) != nil || desired.IsRefused(uid) {
		return true
	}
	return slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.UID == uid && r.owner.Owns(&p) })
}
