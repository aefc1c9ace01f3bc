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

// Allocator chooses devices for pods, calls their plugins, and records the devices of each container. Create it with [New]. Its methods may be called
// from any goroutine.
type Allocator struct {
	opts    Options
	started time.Time
	running runonce.Guard
	wake    chan struct{} // wakes Run after a plugin has disconnected, or when an export is due

	saving sync.Mutex // serializes writes of the record and exports; locked before mu

	mu       sync.Mutex // guards the fields below
	state    state
	lost     bool                       // the record was missing or damaged at the start
	unread   bool                       // Options.Running is not read yet
	early    map[string]bool            // UIDs of pods for which Reserve failed because of unread
	unsaved  bool                       // a release is not in the record
	waiting  map[string]map[string]bool // UIDs of pods that wait for the plugin of a resource
	exported exportState

	allocations map[string]map[string]map[string][]Device // result of Allocations; nil: a reservation or release has changed it
}

// New returns an allocator with the allocations of the record in Options.Record. A damaged record is renamed, logged, and restored
// from Options.Running. New starts no goroutine; call [Allocator.Run]. An error names the invalid option, or the file that cannot be read, or is that of
// [NewMerger] for Options.Topology.
func New(opts Options) (*Allocator, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	merger, err := NewMerger(opts.Topology.Policy, opts.Topology.Options, opts.Topology.Nodes)
	if err != nil {
		return nil, err
	}
	a := &Allocator{
		opts: opts, started: time.Now(), wake: make(chan struct{}, 1), waiting: map[string]map[string]bool{}, early: map[string]bool{},
		state: state{resources: map[string]*resource{}, pods: map[string]*holding{}, dropped: map[string]bool{}, merger: merger, podScope: opts.Topology.PodScope, podLevel: opts.Topology.PodLevel},
	}
	if err := a.loadRecord(); err != nil {
		return nil, err
	}
	a.unread = a.lost && opts.Running != nil
	a.running.Require("device.Allocator", opts.Logger, opts.Hooks.Error)
	return a, nil
}

// Reserve gives a pod all devices that its containers need, or none. If the pod has its devices already, it keeps them. It chooses devices in
// the order of the containers. It calls GetPreferredAllocation and Allocate of the plugins, and records the responses. Start no container of the pod
// before Reserve has succeeded.
//
// Each of the partners reserves one more resource for the pod, such as CPUs, from the same NUMA nodes. The pod gets devices and the resources of all
// partners, or nothing.
//
// After a [*Refusal] the pod must fail. After a [*WaitError] or another error, such as a timeout of a plugin, the pod holds nothing that it did not hold
// before: call Reserve again. A plugin that hangs delays no pod that needs other resources.
func (a *Allocator) Reserve(ctx context.Context, pod Pod, partners ...Partner) (err error) {
	begin := time.Now()
	h, err := a.startReservation(&pod, partners)
	if _, refused := errors.AsType[*Refusal](err); h == nil && !refused {
		return err // nil, or the pod waits
	}
	if err == nil {
		if err = a.completeReservation(ctx, h); err != nil {
			a.abandonReservation(h)
		}
	}
	if hook := a.opts.Hooks.Reserved; hook != nil {
		hook(Reservation{
			PodUID: pod.UID, Took: time.Since(begin), Policy: a.opts.Topology.Policy, PodScope: a.opts.Topology.PodScope, Err: err,
			Aligned: a.opts.Topology.countHints(&pod),
		})
	}
	return err
}

// completeReservation calls the plugins of a pod with new devices, and records the resources of the partners.
func (a *Allocator) completeReservation(ctx context.Context, h *holding) error {
	a.mu.Lock()
	isNew := a.state.pods[h.pod.UID] == h
	a.mu.Unlock()
	if isNew {
		if err := a.askPlugins(ctx, h); err != nil {
			return err
		}
	}
	if err := h.partners.commit(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	h.partners = nil // the state may keep h
	return nil
}

// Topology returns Options.Topology, with which the allocator merges the hints of devices and partners.
func (a *Allocator) Topology() Topology { return a.opts.Topology }

// countHints returns the number of hints that are merged for a pod.
func (t *Topology) countHints(pod *Pod) int {
	switch {
	case t.Policy == None:
		return 0
	case t.PodScope:
		return 1
	}
	return len(pod.Containers)
}

// startReservation chooses devices for a pod and adds it to the state. If the pod limits no devices or has them already, only its partners reserve their
// resources, and the pod is not added. It returns nil if nothing is left to do. If the pod may run without all its resources, the result has no needs.
func (a *Allocator) startReservation(pod *Pod, partners partners) (*holding, error) {
	if err := pod.validate(); err != nil {
		return nil, err
	}
	needs := pod.needs()
	if len(needs)+len(partners) == 0 {
		return nil, nil
	}
	foreign := a.findForeign(needs)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unread && len(needs) > 0 {
		a.early[pod.UID] = true
		return nil, fmt.Errorf("reserve devices of pod %s/%s: the containers of the runtime are not read yet, which say who holds devices", pod.Namespace, pod.Name)
	}
	held := a.state.pods[pod.UID]
	if held != nil {
		if !held.complete {
			return nil, fmt.Errorf("reserve devices of pod %s/%s: another call of Reserve for it is in progress", pod.Namespace, pod.Name)
		}
		if err := held.checkUnchanged(pod); err != nil {
			return nil, err
		}
	}
	if held != nil || len(needs) == 0 {
		if len(partners) == 0 {
			return nil, nil
		}
		return a.state.placePartners(pod, held, partners)
	}
	h := &holding{pod: *pod, partners: partners}
	if err := a.addNeeds(h, needs, foreign); err != nil {
		return nil, err
	}
	if err := a.state.chooseDevices(h, 0, nil); err != nil {
		return nil, err
	}
	a.state.pods[pod.UID] = h
	return h, nil
}

// findForeign returns the names of the resources in needs for which Options.IsForeign returns true.
func (a *Allocator) findForeign(needs []need) map[string]bool {
	foreign := map[string]bool{}
	for _, n := range needs {
		if a.opts.IsForeign != nil && a.opts.IsForeign(n.resource) {
			foreign[n.resource] = true
		}
	}
	return foreign
}

// addNeeds adds needs to h, except resources without which the pod may run. If a plugin may still come, it returns a [*WaitError]. foreign is the
// result of findForeign. The caller holds a.mu.
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

// isRegistered reports whether a plugin of the resource is connected, or was connected within the last [StopGrace]. The caller holds a.mu.
func (a *Allocator) isRegistered(resource string, now time.Time) bool {
	r := a.state.resources[resource]
	return r != nil && r.registered && !r.isForgotten(now)
}

// findPlugin returns the time until which pods wait for the plugin of a resource; zero: no wait. skip is true if pods run without the resource.
// foreign is the result of Options.IsForeign. The caller holds a.mu.
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

// checkUnchanged returns the kubelet's error for a pod whose limits differ from the number of devices that it holds.
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

// abandonReservation frees what a reservation that has failed has taken: the devices of a new pod, which it removes from the state, and the resources of
// the partners.
func (a *Allocator) abandonReservation(h *holding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state.markFree(h)
	h.partners.undo(0)
	if a.state.pods[h.pod.UID] == h {
		delete(a.state.pods, h.pod.UID)
		a.unsaved, a.allocations = a.unsaved || h.complete, nil
	}
}

// Release frees the devices of the pod with this UID. Call it when all containers of the pod have stopped for good. A pod without devices is no
// error. After an error, call Release again: Reserve is still running for the pod, or the devices are free but the record is not written.
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
		return a.saveRecord()
	case !h.complete:
		a.mu.Unlock()
		return fmt.Errorf("release devices of pod %s/%s: a call of Reserve for it is in progress", h.pod.Namespace, h.pod.Name)
	}
	a.removePod(h)
	a.mu.Unlock()
	return a.saveRecord()
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
	return a.saveRecord()
}
