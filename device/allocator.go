// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/runonce"
)

// Allocator chooses devices for pods, calls their plugins, and records which container holds which device. Create it with [New]. Its methods may be called from any goroutine.
type Allocator struct {
	opts    Options
	started time.Time
	running runonce.Guard
	wake    chan struct{} // of Run, when a plugin has gone or an export is due

	saving sync.Mutex // serializes writes of the record and exports; locked before mu

	mu       sync.Mutex // guards the fields below
	state    state
	lost     bool                       // the record was missing or damaged at the start
	unread   bool                       // Options.Running is not read yet
	early    map[string]bool            // UIDs of pods that Reserve turned away because of unread
	unsaved  bool                       // a release is not in the record
	waiting  map[string]map[string]bool // UIDs of pods that wait for the plugin of a resource
	exported exportState

	allocations map[string]map[string]map[string][]Device // result of Allocations; nil: a reservation or release has changed it
}

// New returns an allocator with the allocations of the record in Options.Record. A damaged record is renamed, logged, and restored
// from Options.Running. New starts no goroutine; call [Allocator.Run]. An error names the invalid option, or the file that cannot be read.
func New(opts Options) (*Allocator, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		opts: opts, started: time.Now(), wake: make(chan struct{}, 1), waiting: map[string]map[string]bool{}, early: map[string]bool{},
		state: state{resources: map[string]*resource{}, pods: map[string]*holding{}, dropped: map[string]bool{}, topology: opts.Topology},
	}
	if err := a.load(); err != nil {
		return nil, err
	}
	a.unread = a.lost && opts.Running != nil
	a.running.Require("device.Allocator", opts.Logger, opts.Hooks.Error)
	return a, nil
}

// Reserve gives a pod all devices that its containers need, or none. It returns at once if the pod has its devices. Reserve chooses the
// devices in the order of the containers, asks the plugins with GetPreferredAllocation and Allocate, and records the answers. Nothing of the pod
// may start before.
//
// After a [*Refusal] the pod must fail. After a [*WaitError] and any other error, for example of a plugin that does not answer in time, the
// pod holds no devices, and Reserve may be called again. A plugin that hangs delays no pod that needs other resources.
func (a *Allocator) Reserve(ctx context.Context, pod Pod) (err error) {
	begin := time.Now()
	h, err := a.begin(&pod)
	if _, refused := errors.AsType[*Refusal](err); h == nil && !refused {
		return err // nil, or the pod waits
	}
	if err == nil {
		if err = a.askPlugins(ctx, h); err != nil {
			a.abandon(h)
		}
	}
	if hook := a.opts.Hooks.Reserved; hook != nil {
		hook(Reservation{
			PodUID: pod.UID, Took: time.Since(begin), Policy: a.opts.Topology.Policy, PodScope: a.opts.Topology.PodScope, Err: err,
			Aligned: h.countAligned(a.opts.Topology.PodScope),
		})
	}
	return err
}

// countAligned returns the number of containers with needs, or 1 with pod scope. It is zero if h is nil.
func (h *holding) countAligned(podScope bool) (count int) {
	if h == nil || len(h.needs) == 0 {
		return 0
	}
	if podScope {
		return 1
	}
	for i := range h.needs {
		if i == 0 || h.needs[i].container != h.needs[i-1].container {
			count++
		}
	}
	return count
}

// begin chooses devices for a pod. The result is nil if the pod has its devices already, or limits none. It needs no devices if all its resources
// are foreign: the record then says that it runs without, in case a plugin registers them later.
func (a *Allocator) begin(pod *Pod) (*holding, error) {
	if err := pod.check(); err != nil {
		return nil, err
	}
	needs := pod.needs()
	if len(needs) == 0 {
		return nil, nil
	}
	foreign := a.findForeign(needs)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unread {
		a.early[pod.UID] = true
		return nil, fmt.Errorf("reserve devices of pod %s/%s: the containers of the runtime are not read yet, which say who holds devices", pod.Namespace, pod.Name)
	}
	if h := a.state.pods[pod.UID]; h != nil {
		if !h.complete {
			return nil, fmt.Errorf("reserve devices of pod %s/%s: another call of Reserve for it is in progress", pod.Namespace, pod.Name)
		}
		return nil, h.checkUnchanged(pod)
	}
	h := &holding{pod: *pod}
	if err := a.addNeeds(h, needs, foreign); err != nil {
		return nil, err
	}
	if err := a.state.chooseDevices(h, 0, nil); err != nil {
		return nil, err
	}
	a.state.pods[pod.UID] = h
	return h, nil
}

// findForeign returns the resources of the needs that have another manager.
func (a *Allocator) findForeign(needs []need) map[string]bool {
	foreign := map[string]bool{}
	for _, n := range needs {
		if a.opts.IsForeign != nil && a.opts.IsForeign(n.resource) {
			foreign[n.resource] = true
		}
	}
	return foreign
}

// addNeeds adds needs to a pod, except those for resources that it runs without. A pod that needs a resource whose plugin may come soon gets
// a [*WaitError]. The caller holds a.mu.
func (a *Allocator) addNeeds(h *holding, needs []need, foreign map[string]bool) error {
	now := time.Now()
	for _, n := range needs {
		wait, skip := a.findPlugin(n.resource, now, foreign[n.resource])
		switch {
		case skip:
			continue
		case !wait.IsZero():
			if a.waiting[n.resource] == nil {
				a.waiting[n.resource] = map[string]bool{}
			}
			a.waiting[n.resource][h.pod.UID] = true
			return &WaitError{Resource: n.resource, Until: wait}
		}
		n.unregistered = !a.isRegistered(n.resource, now)
		h.needs = append(h.needs, n)
	}
	return nil
}

// isRegistered reports whether a plugin is registered for a resource, or was until less than [StopGrace] ago. The caller holds a.mu.
func (a *Allocator) isRegistered(resource string, now time.Time) bool {
	r := a.state.resources[resource]
	return r != nil && r.registered && !r.isForgotten(now)
}

// findPlugin returns until when pods wait for the plugin of a resource, or zero. skip is true if pods run without the resource.
// The caller holds a.mu.
func (a *Allocator) findPlugin(resource string, now time.Time, foreign bool) (wait time.Time, skip bool) {
	r := a.state.resources[resource]
	if a.isRegistered(resource, now) {
		if wait = r.waiting; !now.Before(wait) || a.opts.Kubelet.NoWait {
			wait = time.Time{}
		}
		return wait, false
	}
	isHeld, wasRegistered := r != nil && len(r.inUse) > 0, r != nil && r.reported || a.state.dropped[resource]
	foreign = foreign && !isHeld && !wasRegistered
	switch end := a.started.Add(StopGrace); {
	case a.opts.Kubelet.RunWithout && !isHeld, foreign && !a.lost:
		return time.Time{}, true
	case !wasRegistered && now.Before(end) && !a.opts.Kubelet.NoWait:
		return end, false
	}
	return time.Time{}, foreign
}

// checkUnchanged returns the kubelet's error for a pod whose limits differ from what it holds.
func (h *holding) checkUnchanged(pod *Pod) error {
	for i := range h.claims {
		c := &h.claims[i]
		name := h.pod.Containers[c.container].Name
		at := slices.IndexFunc(pod.Containers, func(c Container) bool { return c.Name == name })
		if at >= 0 && pod.Containers[at].Limits[c.resource] != len(c.devices) {
			return newRefusal(fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", pod.UID, name, c.resource,
				len(c.devices), pod.Containers[at].Limits[c.resource]))
		}
	}
	return nil
}

// abandon frees the devices of a pod whose reservation failed.
func (a *Allocator) abandon(h *holding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.markFree(h)
	if a.state.pods[h.pod.UID] == h {
		delete(a.state.pods, h.pod.UID)
	}
}

// Release frees the devices of the pod with this UID, whose containers have all stopped for good. A pod without devices is no error. After
// an error the devices are free, but the record is not written, and Release must be called again.
func (a *Allocator) Release(uid string) error {
	a.mu.Lock()
	h := a.state.pods[uid]
	for _, pods := range a.waiting {
		delete(pods, uid)
	}
	switch {
	case h == nil:
		saved := !a.unsaved
		a.mu.Unlock()
		if saved {
			return nil
		}
		return a.save()
	case !h.complete:
		a.mu.Unlock()
		return fmt.Errorf("release devices of pod %s/%s: a call of Reserve for it is in progress", h.pod.Namespace, h.pod.Name)
	}
	a.removePod(h)
	a.mu.Unlock()
	return a.save()
}

// removePod frees the devices of a pod. The caller holds a.mu, and saves the record.
func (a *Allocator) removePod(h *holding) {
	a.state.markFree(h)
	delete(a.state.pods, h.pod.UID)
	a.unsaved, a.allocations = true, nil
}

// Retain releases all pods for which keep returns false, for example those of a kubelet's checkpoint that no source lists. Call it when all sources
// of pods are complete.
func (a *Allocator) Retain(keep func(uid string) bool) error {
	a.mu.Lock()
	held := slices.Sorted(maps.Keys(a.state.pods))
	a.mu.Unlock()
	gone := slices.DeleteFunc(held, keep) // without the lock: keep may call the Allocator
	a.mu.Lock()
	for _, uid := range gone {
		if h := a.state.pods[uid]; h != nil && h.complete {
			a.removePod(h)
		}
	}
	unsaved := a.unsaved
	a.mu.Unlock()
	if !unsaved {
		return nil
	}
	return a.save()
}
