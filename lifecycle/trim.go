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

// Trim removes what pods that are still wanted, and have terminated or are held back, have in the runtime, with the logs of their
// containers, and returns when that is done. Their statuses and restart counts stay: Dirs.Pods has them, without which Trim is refused. The error
// names the pods of which something was left when ctx ended; that is removed all the same.
func (r *Reconciler) RemoveTerminatedContainers(ctx context.Context) error {
	if r.opts.Dirs.Pods == "" {
		return errors.New("trim pods: Options.Dirs.Pods: required: without it statuses would be lost with the containers")
	}
	if err := r.awaitRun(ctx); err != nil {
		return fmt.Errorf("trim pods: %w", err)
	}
	if r.hasRunReturned() {
		return errors.New("trim pods: Reconciler.Run has ended")
	}
	r.mu.Lock()
	pods := slices.DeleteFunc(slices.Collect(maps.Values(r.workers)), func(w *worker) bool { return !w.shared.isTerminal() && w.record.Get().Eviction == nil })
	r.mu.Unlock()
	done, errs := make([]<-chan struct{}, len(pods)), make([]error, len(pods))
	for i, w := range pods {
		done[i] = w.mailbox.Trim()
	}
	for i, w := range pods {
		errs[i] = r.awaitRemoval(ctx, w, done[i])
	}
	return errors.Join(errs...)
}

// awaitTrim waits until the runtime has nothing of a pod any more. What was done by the time that ctx ended is done, although it was
// another pod that was waited for.
func (r *Reconciler) awaitRemoval(ctx context.Context, w *worker, done <-chan struct{}) error {
	var why error
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		why = errors.Join(ctx.Err(), r.lastErrorOf(w))
	case <-r.runReturned:
		why = errors.New("Reconciler.Run has ended")
	}
	select {
	case <-done:
		return nil
	default:
		return fmt.Errorf("trim pod %s/%s: %w", w.id.Namespace, w.id.Name, why)
	}
}

// Owned reports whether what there is of a pod is this agent's to remove: it is wanted, being taken down, or will be. Any pod may
// be before Run has begun, while not all that is wanted is known, and while the runtime was not listed to the end. Who removes what
// has no owner, such as package gc, asks right before.
func (r *Reconciler) IsManaged(uid string) bool {
	pods, err := r.observer.Pods()
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted := r.desiredPods()
	if err != nil || !r.claimed || r.workers[uid] != nil || !wanted.Complete() || wanted.Pod(uid) != nil || wanted.Refused(uid) {
		return true
	}
	return slices.ContainsFunc(pods, func(p cri.Pod) bool { return p.UID == uid && r.owner.Owns(&p) })
}
