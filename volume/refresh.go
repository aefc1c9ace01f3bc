// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// Update stores a new version of the pod. Call it when the labels or annotations of a running pod change, and for each running
// pod after a restart of the agent. Run then updates the volumes that show them. Update does not block.
func (v *Volumes) Update(pod *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil {
		return
	}
	before := p.spec
	p.spec = pod
	p.nameAdopted(pod)
	same := before != nil && maps.Equal(before.Labels, pod.Labels) && maps.Equal(before.Annotations, pod.Annotations)
	names := podvolume.UsedByPod(&pod.Spec)
	for _, e := range p.volumes {
		if e.plan.Desired == plan.Unknown && e.isUsedBy(names) {
			e.plan.Desired = plan.Mounted
		}
		if !same && v.showsObject(p, e, Object{Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name}) {
			e.plan.Stale = true
			e.plan.Retry()
		}
	}
	v.signal()
}

// watchObjects runs Options.Watcher until ctx ends. When the watcher fails, watchObjects restarts it after a delay.
func (v *Volumes) watchObjects(ctx context.Context) {
	policy := backoff.Policy{First: time.Second, Max: time.Minute}
	var wait time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		err := v.opts.Watcher.Watch(ctx, v.handleChange)
		if ctx.Err() != nil {
			return
		}
		v.handleChange("", "", "") // changes may have been missed: all objects count as changed
		if time.Since(began) > policy.Max {
			wait = 0
		}
		wait = policy.Next(wait)
		v.opts.Logger.Warn("watcher failed: objects are not watched", "error", err, "retryIn", wait)
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

// handleChange makes Run update the volumes that show the changed object, and retry steps that wait for it. An empty argument
// matches any value.
func (v *Volumes) handleChange(kind, namespace, name string) {
	o := Object{Kind: kind, Namespace: namespace, Name: name}
	if uids := v.markStale(o); len(uids) > 0 {
		// These pods may be able to use their claim now.
		v.ready.Call(uids...)
	}
}

// markStale marks the volumes that show the changed object for an update. It returns the UIDs of refused pods whose claim may be
// usable now.
func (v *Volumes) markStale(object Object) (waiting []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.retryWaiting(object)
	for _, p := range v.pods {
		if p.spec == nil || object.Namespace != "" && p.spec.Namespace != object.Namespace {
			continue
		}
		for _, e := range p.volumes {
			if v.showsObject(p, e, object) || e.claimed.usesObject(object) {
				e.plan.Stale, found = true, true
				e.plan.Retry()
				if e.device != nil {
					e.device.plan.Retry()
				}
			}
		}
	}
	if found {
		v.signal()
	}
	for uid, pod := range v.refused {
		if isUnblockedBy(pod, object) {
			waiting = append(waiting, uid)
		}
	}
	return waiting
}

// retryWaiting makes Run retry each failed step that may succeed after the change of the object, and reports whether there is
// one. The caller holds v.mu.
func (v *Volumes) retryWaiting(object Object) (found bool) {
	waits := func(kind string, p *plan.Progress) {
		if w, ok := v.opts.Plugins[kind].(ObjectWaiter); ok && p.Failures > 0 && w.WaitsFor(object) {
			p.Retry()
			found = true
		}
	}
	for _, p := range v.pods {
		for _, e := range p.volumes {
			waits(e.recorded.Plugin, &e.plan.Progress)
		}
	}
	for _, d := range v.devices.byName {
		waits(d.plugin, &d.plan.Progress)
	}
	return found
}

// showsObject reports whether files of a volume are created from this object, such as a ConfigMap. The caller holds v.mu.
func (v *Volumes) showsObject(state *podState, item *entry, object Object) bool {
	r, ok := v.opts.Plugins[item.recorded.Plugin].(Refresher)
	if !ok || state.spec == nil {
		return false
	}
	vol := item.podSource(state.spec)
	return vol != nil && r.Shows(state.spec, vol, object)
}

// usesObject reports whether the object is the claim or the PV of a volume. Without a claim, c is nil.
func (c *claimed) usesObject(object Object) bool {
	if c == nil {
		return false
	}
	return (object.Kind == KindClaim || object.Kind == "") && (object.Name == "" || object.Name == c.pvc.Name) ||
		(object.Kind == KindPV || object.Kind == "") && (object.Name == "" || object.Name == c.pv.Name)
}

// isUnblockedBy reports whether a pod with a refused claim may be able to use it after the change of this object.
func isUnblockedBy(pod *corev1.Pod, object Object) bool {
	if object.Kind == KindPV || object.Kind == "" {
		return true // it is unknown to which PV the claim will be bound
	}
	for i := range pod.Spec.Volumes {
		name, ok := claim.NameOf(pod, &pod.Spec.Volumes[i])
		if ok && object.Kind == KindClaim && (object.Namespace == "" || object.Namespace == pod.Namespace) && (object.Name == "" || object.Name == name) {
			return true
		}
	}
	return false
}
