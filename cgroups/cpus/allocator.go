// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/plainfile"
)

// AllocatorOptions configures an [Allocator]. The zero value keeps no record.
type AllocatorOptions struct {
	// Record is the path of the record, a file with the exclusive CPUs of all containers. NewAllocator creates its directory. After a power failure the
	// record may be older, or damaged. Empty: the state is lost when the agent exits.
	Record string
	// Previous returns the state of another agent, if there is no record; see [Policy.ReadCheckpoint]. Nil, or an error that wraps fs.ErrNotExist: there
	// is no state. NewAllocator documents other errors.
	Previous func() (State, error)
	// Export stores the state for another agent after each change, before the call that made the change returns; see [ExportTo]. It must not call
	// methods that change the state. An error goes to Error, and the next change exports again. Nil: nothing is exported.
	Export func(policy string, s State) error
	// Changed is called after each change, with no lock held, also if the record could not be written. It must not block. NewAllocator does not call it.
	// Set it to call [Writer.Wake] if there is a Writer; see [NewWriter]. Nil: no call.
	Changed func()
	// Error is called for errors that no call returns, with no lock held: a damaged record, an error of Previous, or a failed export. NewAllocator may
	// call it. It must not block. Nil: no call.
	Error func(error)
}

// Allocator keeps the [State] of a node in memory and in a record. Its methods may be called concurrently.
type Allocator struct {
	policy  *Policy
	opts    AllocatorOptions
	notices []Notice

	saving sync.Mutex // held while the record and the export are written

	mu      sync.Mutex // guards the fields below
	state   State
	unsaved bool // the record does not have the state

	reservations map[*Reservation]bool // that have taken CPUs and are not committed
	planned      *State                // state with the CPUs of all reservations; nil: not computed
}

// NewAllocator returns an Allocator that continues, by [Policy.Restore], with the state in the record, or with that of AllocatorOptions.Previous if there
// is no record. It writes the record and exports the state. NewAllocator returns errors of reading and writing the record. It renames a damaged record and
// reports it to AllocatorOptions.Error; all CPUs are then in the shared pool: reserve running pods before new ones. It reports an error of Previous
// likewise and continues without a state. With Kubelet.RefuseChanged, it returns the errors of Previous and Restore.
func NewAllocator(policy *Policy, opts AllocatorOptions) (*Allocator, error) {
	a := &Allocator{policy: policy, opts: opts, reservations: map[*Reservation]bool{}}
	loaded, err := a.load()
	if err != nil {
		return nil, err
	}
	if a.state, a.notices, err = policy.Restore(loaded); err != nil {
		return nil, err
	}
	a.unsaved = true
	if _, err := a.saveState(); err != nil {
		return nil, err
	}
	return a, nil
}

// load returns the state in the record, or the previous state.
func (a *Allocator) load() (State, error) {
	path := a.opts.Record
	if path == "" {
		return a.loadPrevious()
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return State{}, fmt.Errorf("cpus: create the directory of the record: %w", err)
	}
	if err := atomicfile.Clean(path); err != nil {
		return State{}, fmt.Errorf("cpus: clean up beside the record: %w", err)
	}
	data, err := plainfile.Read(path, maxRecord+1024)
	if errors.Is(err, fs.ErrNotExist) {
		return a.loadPrevious()
	}
	if err != nil {
		return State{}, fmt.Errorf("cpus: read the record: %w", err)
	}
	s, err := decodeRecord(data)
	if err == nil {
		return s, nil
	}
	aside := path + ".damaged"
	a.reportError(fmt.Errorf("cpus: record %s is damaged, and renamed to %s: %w", path, aside, err))
	return State{}, os.Rename(path, aside)
}

// loadPrevious returns the state of another agent. Its errors are reported: an agent that could not start would stop all pods.
func (a *Allocator) loadPrevious() (State, error) {
	if a.opts.Previous == nil {
		return State{}, nil
	}
	s, err := a.opts.Previous()
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return s, nil
	case a.policy.kubelet.RefuseChanged:
		return State{}, err
	}
	a.reportError(fmt.Errorf("cpus: read the state of another agent: %w", err))
	return State{}, nil
}

// Notices returns the notices of [Policy.Restore] in NewAllocator. The list does not change afterwards, not even when a pod is released.
func (a *Allocator) Notices() []Notice { return slices.Clone(a.notices) }

// State returns the current state, without reservations that are not committed. The caller must not modify its maps.
func (a *Allocator) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Policy returns the policy.
func (a *Allocator) Policy() *Policy { return a.policy }

// Reservation reserves the exclusive CPUs of one pod, along with its devices and memory: for each container, the caller merges the hints of all resources,
// see [device.Merger.Merge], and calls Take with the nodes of the merged hint. The state does not change before Commit, but other reservations cannot take
// the CPUs: several pods may be reserved at one time. Call Commit or Undo(0) in the end: without either, the CPUs are blocked until the agent exits. A
// Reservation must not be used concurrently.
type Reservation struct {
	allocator *Allocator
	pod       *Pod
	taken     []takenCPUs // guarded by allocator.mu
}

// takenCPUs are the CPUs that a reservation has taken for a container.
type takenCPUs struct {
	container int    // index; zero for the CPUs of a whole pod and their parts
	name      string // of the container, or [WholePod]
	set       topology.CPUSet
}

// Begin starts a reservation. It returns an error for a pod without UID, and for a container name that is empty or not unique.
func (a *Allocator) Begin(pod *Pod) (*Reservation, error) {
	if err := pod.validate(); err != nil {
		return nil, err
	}
	return &Reservation{allocator: a, pod: pod}, nil
}

// assignTaken returns the state in which the containers of the pod have the CPUs that r has taken. The caller holds a.mu.
func (r *Reservation) assignTaken(s State) State {
	for _, t := range r.taken {
		s = s.assign(r.pod.UID, t.name, t.set)
	}
	return s
}

// plannedState returns the state in which all reservations have the CPUs that they have taken.
func (r *Reservation) plannedState() State {
	r.allocator.mu.Lock()
	defer r.allocator.mu.Unlock()
	return r.allocator.planLocked()
}

// planLocked returns the state in which all reservations have the CPUs that they have taken. The caller holds a.mu.
func (a *Allocator) planLocked() State {
	if a.planned == nil {
		s := a.state
		for r := range a.reservations {
			s = r.assignTaken(s)
		}
		a.planned = &s
	}
	return *a.planned
}

// Hints returns the hints of container i; see [Policy.Hints]. Take the CPUs of the containers before i first.
func (r *Reservation) Hints(i int) []device.Hint {
	return r.allocator.policy.Hints(r.plannedState(), r.pod, i)
}

// PodHints returns the hints of the pod; see [Policy.PodHints].
func (r *Reservation) PodHints() []device.Hint {
	return r.allocator.policy.PodHints(r.plannedState(), r.pod)
}

// Take reserves the CPUs of container i, first from the NUMA nodes in affinity, the merged hint; zero: any. See [Policy.ReserveContainer], also for the
// order of the containers. After an error, nothing is taken for the container. Take changes nothing if TakePod has taken the CPUs.
func (r *Reservation) Take(i int, affinity device.Mask) error {
	a := r.allocator
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.planLocked()
	next, err := a.policy.ReserveContainer(s, r.pod, i, affinity)
	if err != nil {
		return err
	}
	name := r.pod.Containers[i].Name
	before, had := s.Assigned[r.pod.UID][name]
	if set, has := next.Assigned[r.pod.UID][name]; has && (!had || set != before) {
		r.taken = append(r.taken, takenCPUs{container: i, name: name, set: set})
		a.reservations[r] = true
		a.planned = &next
	}
	return nil
}

// TakePod reserves the CPUs of the pod and of all its containers, in place of calls of Take for each container. See [Policy.ReservePod]. After an error,
// nothing is taken. Undo(0) frees the CPUs, and Undo of a later container frees none.
func (r *Reservation) TakePod(affinity device.Mask) error {
	a := r.allocator
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.planLocked()
	next, err := a.policy.ReservePod(s, r.pod, affinity)
	if err != nil || len(next.Assigned[r.pod.UID]) == len(s.Assigned[r.pod.UID]) {
		return err
	}
	for name, set := range next.Assigned[r.pod.UID] {
		r.taken = append(r.taken, takenCPUs{name: name, set: set})
	}
	a.reservations[r] = true
	a.planned = &next
	return nil
}

// Undo frees the CPUs that were taken for containers from this index on. It keeps CPUs that the pod had before, and those of a call of Commit, even if
// Commit has returned an error: Release frees them.
func (r *Reservation) Undo(from int) {
	a := r.allocator
	a.mu.Lock()
	defer a.mu.Unlock()
	r.taken = slices.DeleteFunc(r.taken, func(t takenCPUs) bool { return t.container >= from })
	if len(r.taken) == 0 {
		delete(a.reservations, r)
	}
	a.planned = nil
}

// Commit adds the reserved CPUs to the state and writes the record. Start no container of the pod until Commit returns nil. An error means that the
// record is not written; the pod keeps its CPUs in the state: call Commit again, or Release. Another Commit after success changes nothing.
func (r *Reservation) Commit() error {
	a := r.allocator
	a.mu.Lock()
	a.setState(r.assignTaken(a.state))
	r.taken = nil // a second call assigns nothing, also after Release
	delete(a.reservations, r)
	a.planned = nil
	a.mu.Unlock()
	return a.save()
}

// setState replaces the state, unless it is the same. The caller holds a.mu.
func (a *Allocator) setState(next State) {
	if next.Shared == a.state.Shared && maps.EqualFunc(next.Assigned, a.state.Assigned, equalContainers) {
		return
	}
	a.state, a.planned = next, nil
	a.unsaved = true
}

// equalContainers reports whether the containers of a pod have equal CPUs.
func equalContainers(a, b map[string]topology.CPUSet) bool { return maps.Equal(a, b) }

// Reserve reserves the exclusive CPUs of all containers of a pod and writes the record. Start no container of the pod until Reserve returns nil. It
// reserves container by container, and never a whole pod as [Reservation.TakePod] does. affinity is that of [Policy.Reserve], is called with no lock
// held, and may be nil: no container has a preference.
//
// A [*device.Refusal] means that the pod must fail. After a refusal, an error of affinity or an error of Begin, the pod has only the CPUs that it had
// before. Any other error means that the record is not written; the pod keeps its CPUs in the state: call Reserve again, or Release.
func (a *Allocator) Reserve(pod *Pod, affinity func(s State, i int) (device.Mask, error)) error {
	r, err := a.Begin(pod)
	if err != nil {
		return err
	}
	for i := range pod.Containers {
		var nodes device.Mask
		if affinity != nil && a.policy.static && a.policy.countCPUs(pod, i) > 0 {
			nodes, err = affinity(r.plannedState(), i)
		}
		if err == nil {
			err = r.Take(i, nodes)
		}
		if err != nil {
			r.Undo(0)
			return err
		}
	}
	return r.Commit()
}

// Release frees the CPUs of the pod with this UID, if it has any, and writes the record. Call it when all containers of the pod have terminated for
// good. An error means that the CPUs are free, but the record is not written: call Release again. CPUs of a reservation that is not committed stay
// reserved.
func (a *Allocator) Release(podUID string) error {
	a.mu.Lock()
	a.setState(a.policy.Release(a.state, podUID))
	a.mu.Unlock()
	return a.save()
}

// Retain frees the CPUs of all pods for which keep returns false. Call it when all sources have reported their pods. keep is called with no lock held
// and may call the Allocator. The error is that of Release.
func (a *Allocator) Retain(keep func(podUID string) bool) error {
	removed := map[string]bool{}
	for uid := range a.State().Assigned { // without the lock: keep may call the Allocator
		removed[uid] = !keep(uid)
	}
	a.mu.Lock()
	a.setState(a.policy.Retain(a.state, func(uid, _ string) bool { return !removed[uid] }))
	a.mu.Unlock()
	return a.save()
}

// CPUs returns the CPUs on which a container runs, and whether they are exclusive; see [State.CPUs]. Until [Writer.Settle] returns, containers of the
// shared pool may still run on exclusive CPUs.
func (a *Allocator) CPUs(podUID, container string) (set topology.CPUSet, exclusive bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state.CPUs(podUID, container)
}

// save writes the record and exports the state, if it has changed, and calls Options.Changed.
func (a *Allocator) save() error {
	changed, err := a.saveState()
	if changed && a.opts.Changed != nil {
		a.opts.Changed()
	}
	return err
}

// saveState writes the record and exports the state, if it has changed. It does not wait for the disk: the record survives a kill of the agent, and a power
// failure ends the containers whose CPUs it has.
func (a *Allocator) saveState() (changed bool, err error) {
	a.saving.Lock()
	a.mu.Lock()
	s := a.state
	changed, a.unsaved = a.unsaved, false
	a.mu.Unlock()
	if !changed {
		a.saving.Unlock()
		return false, nil
	}
	var exported error
	if err = a.writeRecord(&s); err != nil {
		a.mu.Lock()
		a.unsaved = true
		a.mu.Unlock()
	} else if a.opts.Export != nil {
		exported = a.opts.Export(a.policy.Name(), s)
	}
	a.saving.Unlock()
	if exported != nil {
		a.reportError(fmt.Errorf("cpus: export the state: %w", exported))
	}
	return true, err
}

// writeRecord replaces the record. The caller holds a.saving.
func (a *Allocator) writeRecord(s *State) error {
	if a.opts.Record == "" {
		return nil
	}
	data, err := encodeRecord(s)
	if err == nil {
		err = atomicfile.Replace(a.opts.Record, data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("cpus: write the record: %w", err)
	}
	return nil
}

// reportError passes an error that no call returns to Options.Error.
func (a *Allocator) reportError(err error) {
	if a.opts.Error != nil {
		a.opts.Error(err)
	}
}
