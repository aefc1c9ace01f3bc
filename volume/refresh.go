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

// Update says that a pod whose volumes are set up has changed, such as its labels, or that an agent which was started again
// still wants it. Those of its volumes that show that are brought up to date. It does not wait.
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
	names := podvolume.Used(&pod.Spec)
	for _, e := range p.volumes {
		if e.plan.Desired == plan.Unknown && e.usedBy(names) {
			e.plan.Desired = plan.Mounted
		}
		if !same && v.shows(p, e, Object{Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name}) {
			e.plan.Stale = true
			e.plan.Retry()
		}
	}
	v.signal()
}

// watch follows changed objects until ctx ends.
func (v *Volumes) watch(ctx context.Context) {
	policy := backoff.Policy{First: time.Second, Max: time.Minute}
	var wait time.Duration
	for ctx.Err() == nil {
		began := time.Now()
		err := v.opts.Watcher.Watch(ctx, v.changed)
		if ctx.Err() != nil {
			return
		}
		v.changed("", "", "") // nobody knows what was missed
		if time.Since(began) > policy.Max {
			wait = 0
		}
		wait = policy.Next(wait)
		v.opts.Logger.Warn("objects are not watched", "error", err, "again", wait)
		if sleep.For(ctx, wait) != nil {
			return
		}
	}
}

// changed has volumes brought up to date that show an object, and tries those again that wait for it.
func (v *Volumes) changed(kind, namespace, name string) {
	o := Object{Kind: kind, Namespace: namespace, Name: name}
	if uids := v.markStale(o); len(uids) > 0 {
		v.ready.Call(uids...)
	}
}

// markStale marks the volumes that show a changed object. It returns the pods that were refused the object.
func (v *Volumes) markStale(o Object) (waiting []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := v.retryWaiting(o)
	for _, p := range v.pods {
		if p.spec == nil || o.Namespace != "" && p.spec.Namespace != o.Namespace {
			continue
		}
		for _, e := range p.volumes {
			if v.shows(p, e, o) || e.claimed.is(o) {
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
		if waitsFor(pod, o) {
			waiting = append(waiting, uid)
		}
	}
	return waiting
}

// retryWaiting ends the back-off of the steps that wait for a changed object, and reports whether there are any.
func (v *Volumes) retryWaiting(o Object) (found bool) {
	waits := func(kind string, p *plan.Progress) {
		if w, ok := v.opts.Plugins[kind].(Waiter); ok && p.Failures > 0 && w.WaitsFor(o) {
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
		waits(d.kind, &d.plan.Progress)
	}
	return found
}

// shows reports whether a volume shows an object.
func (v *Volumes) shows(p *podState, e *entry, o Object) bool {
	r, ok := v.opts.Plugins[e.recorded.Plugin].(Refresher)
	if !ok || p.spec == nil {
		return false
	}
	vol := e.source(p.spec)
	return vol != nil && r.Shows(p.spec, vol, o)
}

// is reports whether a volume with a claim is made of an object.
func (c *claimed) is(o Object) bool {
	if c == nil {
		return false
	}
	return (o.Kind == KindClaim || o.Kind == "") && (o.Name == "" || o.Name == c.pvc.Name) ||
		(o.Kind == KindPV || o.Kind == "") && (o.Name == "" || o.Name == c.pv.Name)
}

// waitsFor reports whether a pod that cannot use one of its claims may be able to when an object has changed. Which volume a claim is
// bound to is not known.
func waitsFor(pod *corev1.Pod, o Object) bool {
	if o.Kind == KindPV || o.Kind == "" {
		return true
	}
	for i := range pod.Spec.Volumes {
		name, ok := claim.Of(pod, &pod.Spec.Volumes[i])
		if ok && o.Kind == KindClaim && (o.Namespace == "" || o.Namespace == pod.Namespace) && (o.Name == "" || o.Name == name) {
			return true
		}
	}
	return false
}
