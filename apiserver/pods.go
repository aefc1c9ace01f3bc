// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/lifecycle/podstatus"
	"github.com/seed81659283/nodeagent/qos"
)

// maxPods is how many pods of one node are taken. Of more pods the first in the order of [comparePods] are, and [Pods.Err] returns how many
// are left out.
const maxPods = 10_000

// maxTerminated is how many pods in a terminal phase that are not deleted the node works on: the newest by creation. A node does nothing for
// such a pod but keep its logs, and 10,000 of them cost as much memory as 10,000 that run.
const maxTerminated = 1_000

// relist is how often the pods come from a list of the API server's own store, times a factor between 1 and 1.25: a pod
// whose deletion was lost would run for as long. Other objects can wait for a store's hour.
const relistPeriod = 12 * time.Minute

// Pods are the pods that the API server has bound to the node. Get them from [Source.Pods].
type Pods struct {
	source *Source
	store  *kubeapi.Store[*corev1.Pod]
	guard  runonce.Guard
	wake   chan struct{}

	mu        sync.Mutex // guards what follows
	listeners []func(keys ...string)
}

func newPods(s *Source) *Pods {
	p := &Pods{source: s, wake: make(chan struct{}, 1)}
	p.store = kubeapi.NewStore(kubeapi.In(s.client, kubeapi.Pods, ""), kubeapi.StoreOptions[*corev1.Pod]{
		FieldSelector: "spec.nodeName=" + s.opts.NodeName,
		Transform:     trimPod,
		Changed:       p.notifyChanged,
		Failed:        p.reportFailure,
		MaxObjects:    maxPods,
		Compare:       comparePods,
		Relist:        relistPeriod,
	})
	return p
}

// comparePods orders pods by how much the node must know of them: those that may run, those that must be removed from the API server, and
// those that have terminated; the oldest first, so that no new pod displaces one that runs.
func comparePods(a, b *corev1.Pod) int {
	return cmp.Or(cmp.Compare(podRank(a), podRank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
}

func podRank(pod *corev1.Pod) int {
	switch {
	case !podstatus.IsTerminal(pod.Status.Phase):
		return 0
	case pod.DeletionTimestamp != nil:
		return 1
	}
	return 2
}

// limitTerminated returns pods without the oldest pods in a terminal phase beyond most of them, in the same order. Deleted pods and mirror pods
// do not count. It may change the slice.
func limitTerminated(pods []*corev1.Pod, limit int) []*corev1.Pod {
	var terminated []*corev1.Pod
	for _, pod := range pods {
		if podRank(pod) == 2 && !qos.IsMirror(pod) {
			terminated = append(terminated, pod)
		}
	}
	if len(terminated) <= limit {
		return pods
	}
	slices.SortFunc(terminated, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	omitted := map[types.UID]bool{}
	for _, pod := range terminated[:len(terminated)-limit] {
		omitted[pod.UID] = true
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return omitted[pod.UID] })
}

// slim drops of a pod what no part of an agent reads, and makes it one of this source, so that [Merge] needs no copy.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	pod.ManagedFields = nil
	if qos.IsMirror(pod) {
		return pod
	}
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string, 1)
	}
	delete(pod.Annotations, annotationSeen)
	pod.Annotations[annotationSource] = API
	return pod
}

func (p *Pods) reportFailure(err error) {
	p.source.opts.Logger.Warn("pods of the node", "error", err)
	if hook := p.source.opts.Hooks.Error; hook != nil {
		hook(err)
	}
}

// changed is told the keys of pods that have come, changed or gone.
func (p *Pods) notifyChanged(keys ...string) {
	p.mu.Lock()
	listeners := p.listeners
	p.mu.Unlock()
	for _, listen := range listeners {
		listen(keys...)
	}
	sleep.Wake(p.wake)
}

// subscribe has a part of the Source told the keys of pods that have come, changed or gone, mirror pods too, with no lock
// held. It must not block.
func (p *Pods) addListener(listen func(keys ...string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(slices.Clip(p.listeners), listen)
}

// Run lists and watches the pods of the node until ctx ends, and calls sink with all of them: for the first time once they are
// known, then after each change. Changes during a call are one. When the API server is away the pods stay as they were last
// known, and nothing is said. It returns nil, or an error at once when it is called a second time.
func (p *Pods) Run(ctx context.Context, sink func(Update)) error {
	if sink == nil {
		return errors.New("apiserver.Pods: Run wants a sink: what hands the set to podstore.Store.Update and lifecycle.Reconciler.Set")
	}
	if err := p.guard.Begin(); err != nil {
		return fmt.Errorf("apiserver.Pods: %w", err)
	}
	defer p.guard.End()
	if wait := p.source.opts.WaitForNode; wait != nil {
		if err := wait(ctx); ctx.Err() != nil {
			return nil //nolint:nilerr // It is the end that was asked for.
		} else if err != nil {
			return fmt.Errorf("apiserver.Pods: wait for node %s: %w", p.source.opts.NodeName, err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan error, 1)
	wg.Go(func() { ended <- p.store.Run(ctx) })
	defer cancel()
	return p.sendUpdates(ctx, ended, sink)
}

// follow hands on what the store has, after each change.
func (p *Pods) sendUpdates(ctx context.Context, ended <-chan error, sink func(Update)) error {
	var last *Update
	for {
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		case <-p.wake:
		}
		if !p.store.Synced() {
			continue
		}
		var before Update
		if last != nil {
			before = *last
		}
		next := Merge(before, limitTerminated(p.store.List(), maxTerminated), p.source.opts.NodeName)
		if omitted, first := p.store.Omitted(); omitted > 0 {
			next.Incomplete = podRank(first) == 0 // then a pod that is left out may run
		}
		if last != nil && next.isEqual(before) {
			continue
		}
		last = &next
		sink(next)
	}
}

// synced reports whether all pods of the node are known: the API server has listed them once.
func (p *Pods) isSynced() bool { return p.store.Synced() }

// Err returns what the last request failed with, or nil.
func (p *Pods) Err() error { return p.store.Status().Err }

// object returns a pod of the node as the API server has it, mirror pods too; but in others kubernetes.io/config.source is "api". It is
// shared and must not be changed.
func (p *Pods) getObject(namespace, name string) (*corev1.Pod, bool) {
	return p.store.Get(kubeapi.Key(namespace, name))
}
