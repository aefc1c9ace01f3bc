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

// maxPods is the largest number of pods of the node that are listed. Further pods, in the order of [comparePods], are
// omitted, and [Pods.Err] reports their number.
const maxPods = 10_000

// maxTerminated is the largest number of pods in a terminal phase that are not being deleted; older pods are omitted. The node
// only keeps their logs, but each of them needs as much memory as a running pod.
const maxTerminated = 1_000

// relistPeriod is the time between two lists from the API server's etcd, times a factor between 1 and 1.25. A pod whose deletion
// event was lost runs until the next list. Other kinds are listed every hour.
const relistPeriod = 12 * time.Minute

// Pods lists and watches the pods that are bound to the node. Get it from [Source.Pods].
type Pods struct {
	source *Source
	store  *kubeapi.Store[*corev1.Pod]
	guard  runonce.Guard
	wake   chan struct{}

	mu        sync.Mutex // guards the fields below
	listeners []func(keys ...string)
}

func newPods(source *Source) *Pods {
	p := &Pods{source: source, wake: make(chan struct{}, 1)}
	p.store = kubeapi.NewStore(kubeapi.In(source.client, kubeapi.Pods, ""), kubeapi.StoreOptions[*corev1.Pod]{
		FieldSelector: "spec.nodeName=" + source.opts.NodeName,
		Transform:     trimPod,
		Changed:       p.notifyChanged,
		Failed:        p.reportFailure,
		MaxObjects:    maxPods,
		Compare:       comparePods,
		Relist:        relistPeriod,
	})
	return p
}

// comparePods orders pods by importance and then by age: pods that may run first, then pods in a terminal phase that are being
// deleted.
func comparePods(a, b *corev1.Pod) int {
	// a full store drops the last pods, so that a new pod displaces no running pod
	return cmp.Or(cmp.Compare(podRank(a), podRank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
}

// podRank returns 0 for a pod that may run, 1 for a terminal pod that is being deleted, and 2 for other terminal pods.
func podRank(pod *corev1.Pod) int {
	switch {
	case !podstatus.IsTerminal(pod.Status.Phase):
		return 0
	case pod.DeletionTimestamp != nil:
		return 1
	}
	return 2
}

// limitTerminated removes the oldest pods in a terminal phase from the slice, so that at most limit remain.
func limitTerminated(pods []*corev1.Pod, limit int) []*corev1.Pod {
	var terminated []*corev1.Pod
	for _, pod := range pods {
		if podRank(pod) == 2 && !qos.IsMirror(pod) { // neither mirror pods nor pods that are being deleted
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

// trimPod removes the managed fields of a pod and sets its source annotation to "api". It changes and returns its argument.
func trimPod(pod *corev1.Pod) *corev1.Pod {
	// in this form, Merge need not copy the pod
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
	p.source.opts.Logger.Warn("list or watch pods of the node", "error", err)
	if hook := p.source.opts.Hooks.Error; hook != nil {
		hook(err)
	}
}

// notifyChanged calls all listeners with the keys of added, changed and removed pods, and wakes Run.
func (p *Pods) notifyChanged(keys ...string) {
	p.mu.Lock()
	listeners := p.listeners
	p.mu.Unlock()
	for _, listen := range listeners {
		listen(keys...)
	}
	sleep.Wake(p.wake)
}

// addListener registers a function that is called with the keys of added, changed and removed pods. It must not block.
func (p *Pods) addListener(listen func(keys ...string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listeners = append(slices.Clip(p.listeners), listen)
}

// Run lists and watches the pods of the node until ctx ends, and then returns nil. It passes the complete set of pods to sink
// after the first list and after each change; changes during a call of sink are combined.
//
// While the API server is unavailable, Run does not call sink: the last set stays valid. A second call of Run returns an error.
func (p *Pods) Run(ctx context.Context, sink func(Update)) error {
	if sink == nil {
		return errors.New("apiserver.Pods: Run: sink is nil: it passes the set to podstore.Store.Update and lifecycle.Reconciler.Set")
	}
	if err := p.guard.Begin(); err != nil {
		return fmt.Errorf("apiserver.Pods: %w", err)
	}
	defer p.guard.End()
	if wait := p.source.opts.WaitForNode; wait != nil {
		if err := wait(ctx); ctx.Err() != nil {
			return nil // the end of ctx is no error
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

// sendUpdates calls sink with the pods of the store after each change, until ctx ends or the store stops.
func (p *Pods) sendUpdates(ctx context.Context, storeStopped <-chan error, sink func(Update)) error {
	var last *Update
	for {
		select {
		case err := <-storeStopped:
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
			next.Incomplete = podRank(first) == 0 // an omitted pod may run
		}
		if last != nil && next.isEqual(before) {
			continue
		}
		last = &next
		sink(next)
	}
}

// isSynced reports whether the first list of pods is complete.
func (p *Pods) isSynced() bool { return p.store.Synced() }

// Err returns the error of the last request, or nil.
func (p *Pods) Err() error { return p.store.Status().Err }

// getObject returns the watched pod or mirror pod with this name. The pod is shared and must not be changed.
func (p *Pods) getObject(namespace, name string) (pod *corev1.Pod, exists bool) {
	return p.store.Get(kubeapi.Key(namespace, name))
}
