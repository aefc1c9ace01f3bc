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

// Update reports that a running pod has changed, such as its labels, or that a restarted agent keeps it. Volumes that show the
// pod's metadata are updated. Update does not block.
func (v *Volumes) Update(pod *corev1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil {
		return
	}
	before := p.spec
	p.spec = pod
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

// watchObjects runs Options.Watcher until ctx ends, and restarts it after errors.
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

// handleChange updates the volumes that show a changed object, and retries steps and pods that wait for the object. An empty
// argument stands for any.
func (v *Volumes) handleChange(kind, namespace, name string) {
	o := Object{Kind: kind, Namespace: namespace, Name: name}
	if uids := v.markStale(o); len(uids) > 0 {
		v.ready.Call(uids...)
	}
}

// markStale marks the volumes that show a changed object as outdated. It returns the UIDs of the pods with a refused claim
// that the object may make usable.
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

// retryWaiting ends the back-off of the steps that object may unblock, and reports whether there are any. v.mu is held.
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

// showsObject reports whether the files of a volume show an object, such as a ConfigMap. v.mu is held.
func (v *Volumes) showsObject(state *podState, item *entry, object Object) bool {
	r, ok := v.opts.Plugins[item.recorded.Plugin].(Refresher)
	if !ok || state.spec == nil {
		return false
	}
	vol := item.podSource(state.spec)
	return vol != nil && r.Shows(state.spec, vol, object)
}

// usesObject reports whether object is the claim or the PV of a volume. c may be nil: the volume has no claim.
func (c *claimed) usesObject(object Object) bool {
	if c == nil {
		return false
	}
	return (object.Kind == KindClaim || object.Kind == "") && (object.Name == "" || object.Name == c.pvc.Name) ||
		(object.Kind == KindPV || object.Kind == "") && (object.Name == "" || object.Name == c.pv.Name)
}

// isUnblockedBy reports whether a changed object may make a refused claim of pod usable. Each PV may: it is unknown to which PV a
// claim will be bound.
func isUnblockedBy(pod *corev1.Pod, object Object) bool {
	if object.Kind == KindPV || object.Kind == "" {
		return true
	}
	for i := range pod.Spec.Volumes {
		name, ok := claim.NameOf(pod, &pod.Spec.Volumes[i])
		if ok && object.Kind == KindClaim && (object.Namespace == "" || object.Namespace == pod.Namespace) && (object.Name == "" || object.Name == name) {
			return true
		}
	}
	return false
}
