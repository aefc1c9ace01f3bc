// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/seed81659283/nodeagent/device"
)

// AllocatorOptions configures an [Allocator]. The zero value keeps no record.
type AllocatorOptions struct {
	// Record is the path of the file with the memory of all containers. NewAllocator creates its directory. Empty: the memory of containers is not
	// recorded, and a restarted agent reads only Checkpoint.
	Record string
	// Checkpoint is the path of the file memory_manager_state of a kubelet, which NewAllocator reads if Record does not exist. Empty: it reads none.
	Checkpoint string
	// Export replaces Checkpoint in NewAllocator and after each change, for a kubelet that replaces the agent. It needs Checkpoint. An error of writing goes to
	// Error, and the next change exports again.
	Export bool
	// Error is called for errors that no call returns: a damaged record or checkpoint, or a failed export. It must not block or call the Allocator. Nil: no
	// call.
	Error func(error)
}

// Allocator keeps the [State] of a node in memory and in a record. Its methods may be called concurrently.
type Allocator struct {
	policy  *Policy
	opts    AllocatorOptions
	changes []string

	saving sync.Mutex // held while the record and the checkpoint are written

	mu      sync.Mutex // guards the fields below
	state   State
	changed uint64 // number of changes of state
	unsaved bool   // the record does not have the state
}

// NewAllocator returns an Allocator with the state in the record, or in the kubelet's checkpoint if there is no record, and writes the record.
//
// A damaged record, and a checkpoint that is damaged or cannot be read, are reported to AllocatorOptions.Error, and no container has memory of its own.
// NewAllocator renames such a record to *.damaged, and does not read the checkpoint in its place. It returns an error if it cannot read, rename or write the
// record, and for Export without Checkpoint. With Kubelet.RefuseChanged, it also returns an error for a damaged checkpoint, and the errors of
// [Policy.Restore].
func NewAllocator(policy *Policy, opts AllocatorOptions) (*Allocator, error) {
	if opts.Export && opts.Checkpoint == "" {
		return nil, errors.New("numa: AllocatorOptions.Export needs AllocatorOptions.Checkpoint, the file to write")
	}
	a := &Allocator{policy: policy, opts: opts}
	saved, err := a.load()
	if err != nil {
		return nil, err
	}
	if saved.Policy != "" { // a file was read
		restored, err := policy.Restore(saved)
		if err != nil {
			return nil, err
		}
		a.state, a.changes = restored.State, restored.Changes
	}
	a.unsaved = true
	if err := a.save(); err != nil {
		return nil, err
	}
	return a, nil
}

// load returns the content of the record, or of the checkpoint if there is no record. The content of no file is the zero value.
func (a *Allocator) load() (Saved, error) {
	saved, err := Saved{}, fs.ErrNotExist
	if a.opts.Record != "" {
		saved, err = ReadRecord(a.opts.Record)
	}
	switch {
	case err == nil:
		return saved, nil
	case errors.Is(err, fs.ErrNotExist):
		return a.loadCheckpoint()
	}
	if !errors.Is(err, errDamaged) {
		return Saved{}, err // the next start may read the record
	}
	aside := a.opts.Record + ".damaged"
	a.reportError(fmt.Errorf("the record is renamed to %s: %w", aside, err))
	return Saved{}, os.Rename(a.opts.Record, aside)
}

// loadCheckpoint returns the content of the kubelet's checkpoint. Its errors are reported: an agent that does not start would stop all pods.
func (a *Allocator) loadCheckpoint() (Saved, error) {
	if a.opts.Checkpoint == "" {
		return Saved{}, nil
	}
	saved, err := ReadCheckpoint(a.opts.Checkpoint)
	switch {
	case err == nil:
		return saved, nil
	case errors.Is(err, fs.ErrNotExist):
		return Saved{}, nil
	case a.policy.kubelet.RefuseChanged:
		return Saved{}, err
	}
	a.reportError(err)
	return Saved{}, nil
}

// Policy returns the policy.
func (a *Allocator) Policy() *Policy { return a.policy }

// Changes returns the differences of machine and configuration from those of the previous agent; see Restored.Changes.
func (a *Allocator) Changes() []string { return slices.Clone(a.changes) }

// State returns the current state. It includes memory that a [PodReservation] has taken and not committed yet.
func (a *Allocator) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.state
}

// Release frees the memory of the pod with this UID, if it has any. Call it after the pod has terminated. It returns an error if it cannot write the record:
// the memory is free then, and another call of Release writes the record.
func (a *Allocator) Release(podUID string) error {
	return a.changeState(func(s State) State { return a.policy.Release(s, podUID) })
}

// Retain frees the memory of all pods for which keep returns false, with the errors of Release. Call it when all sources of pods are complete. keep may call
// the Allocator.
func (a *Allocator) Retain(keep func(podUID string) bool) error {
	removed := slices.DeleteFunc(a.State().Pods(), keep)
	return a.changeState(func(s State) State {
		for _, uid := range removed {
			s = a.policy.Release(s, uid)
		}
		return s
	})
}

// Start frees the memory of the init containers before container i of a pod, which starts; see [Policy.Start]. It does nothing without Kubelet.FreeInit. It
// returns an error if it cannot write the record.
func (a *Allocator) Start(pod *Pod, i int) error {
	if !a.policy.kubelet.FreeInit {
		return nil
	}
	return a.changeState(func(s State) State { return a.policy.Start(s, pod, i) })
}

// changeState replaces the state by the result of next, and writes the record if it lacks the state.
func (a *Allocator) changeState(next func(State) State) error {
	a.mu.Lock()
	a.setState(next(a.state))
	a.mu.Unlock()
	return a.save()
}

// setState replaces the state, unless no container has other memory. The caller holds a.mu.
func (a *Allocator) setState(next State) {
	if next.pods != a.state.pods {
		a.state, a.unsaved = next, true
		a.changed++
	}
}

// save writes the record and the checkpoint if they lack the state. It calls no fsync; see WriteRecord.
func (a *Allocator) save() error {
	a.saving.Lock()
	defer a.saving.Unlock()
	a.mu.Lock()
	s, unsaved := a.state, a.unsaved
	a.unsaved = false
	a.mu.Unlock()
	if !unsaved {
		return nil
	}
	if a.opts.Record != "" {
		if err := WriteRecord(a.opts.Record, a.policy.Save(s)); err != nil {
			a.mu.Lock()
			a.unsaved = true
			a.mu.Unlock()
			return err
		}
	}
	if a.opts.Export {
		if err := WriteCheckpoint(a.opts.Checkpoint, a.policy.Export(s)); err != nil {
			a.reportError(err)
		}
	}
	return nil
}

// reportError passes an error that no call returns to Options.Error.
func (a *Allocator) reportError(err error) {
	if a.opts.Error != nil {
		a.opts.Error(err)
	}
}

// PodReservation is a transaction that reserves the memory of one pod. It is not the [Reservation] of a configuration. For each container in order, the
// caller merges the result of Hints with the hints of devices and CPUs, see [device.Merger.Merge], and calls Take with the merged hint. At the end, it calls
// Commit.
//
// Take assigns the memory at once, so that reservations of other pods cannot take it. A caller that does not complete the reservation must call Undo(0):
// otherwise the pod has the memory until [Allocator.Release].
//
// If another reservation takes memory between Hints and Take, Take may choose more NUMA nodes than the hint has, or return a [*Refusal]; see
// [Policy.Reserve]. The caller may then call Hints for the container again. A PodReservation must not be used concurrently.
//
// A caller often has a cpus.Reservation beside it, which differs:
//   - Take changes [Allocator.State] at once. In package cpus, Commit changes it.
//   - Undo frees the memory also after Commit, and Release also before Commit. Package cpus keeps the CPUs in both cases.
//   - If no set of NUMA nodes has enough memory, Hints returns nil, and Take returns a [*Refusal]. In package cpus, Hints returns an empty list, and the
//     topology policy refuses the pod.
type PodReservation struct {
	allocator *Allocator
	pod       *Pod
	before    []State // before each container took its memory

	// The fields below are guarded by allocator.mu. A container that takes its memory again after Undo takes it from the state before, with the same free
	// memory on each node: free memory of a group may otherwise be on another of its nodes, see Node.Memory.
	changed uint64 // Allocator.changed after the last call of Take or Undo
	exact   int    // the elements of before from this index on lack no change of another pod
	resumed *State // from which the next container takes its memory, unless another pod has changed the state; nil: Allocator.state
}

// Begin starts a reservation, and takes no memory yet. It returns an error if the UID of the pod or the name of a container is empty, or if two containers
// have the same name. The caller must not change pod until the end of the reservation.
func (a *Allocator) Begin(pod *Pod) (*PodReservation, error) {
	if err := pod.validate(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return &PodReservation{allocator: a, pod: pod, changed: a.changed}, nil
}

// currentState returns the state from which the next container takes its memory. The caller holds allocator.mu.
func (r *PodReservation) currentState() State {
	if r.changed != r.allocator.changed { // by another pod
		r.exact, r.resumed = len(r.before), nil
	}
	if r.resumed != nil {
		return *r.resumed
	}
	return r.allocator.state
}

// plannedState returns the result of currentState.
func (r *PodReservation) plannedState() State {
	r.allocator.mu.Lock()
	defer r.allocator.mu.Unlock()
	return r.currentState()
}

// Hints returns the hints of container i; see [Policy.Hints]. Take must have been called for all containers before it.
func (r *PodReservation) Hints(i int) [][]device.Hint {
	return r.allocator.policy.Hints(r.plannedState(), r.pod, i)
}

// PodHints returns the hints of the pod; see [Policy.PodHints].
func (r *PodReservation) PodHints() [][]device.Hint {
	return r.allocator.policy.PodHints(r.plannedState(), r.pod)
}

// Take reserves the memory of the next container with the merged hint; the first call is for container 0. Call it once for each container, in order: for a
// container that cannot have memory of its own, or has memory already, it changes nothing. It returns the error of [Policy.Reserve], and reserves nothing
// then: the next call is for the same container.
func (r *PodReservation) Take(affinity device.Hint) error {
	return r.replaceState(func(base State) (State, error) {
		return r.allocator.policy.reserveContainer(base, r.pod, len(r.before), affinity)
	})
}

// TakePod reserves the memory of the pod and of all its containers, in place of the calls of Take. It returns the error of [Policy.ReservePod], and reserves
// nothing then. Undo(0) frees the memory; Undo of a later container does nothing.
func (r *PodReservation) TakePod(affinity device.Hint) error {
	return r.replaceState(func(base State) (State, error) { return r.allocator.policy.ReservePod(base, r.pod, affinity) })
}

// replaceState replaces the state by the result of reserve, which gets the current state.
func (r *PodReservation) replaceState(reserve func(base State) (State, error)) error {
	a := r.allocator
	a.mu.Lock()
	defer a.mu.Unlock()
	base := r.currentState()
	next, err := reserve(base)
	if err != nil {
		return err
	}
	r.before = append(r.before, base)
	if next.pods == base.pods {
		return nil
	}
	a.setState(next)
	r.changed, r.resumed = a.changed, nil
	return nil
}

// Undo frees the memory that Take has reserved for containers from this index on, also after Commit. The next call of Take is for container from. Undo
// keeps memory that the pod had before the reservation. It does not write the record, which may have the memory of the pod until the next change: a
// restarted agent then frees the memory with [Allocator.Retain].
func (r *PodReservation) Undo(from int) {
	if from >= len(r.before) {
		return
	}
	a := r.allocator
	a.mu.Lock()
	defer a.mu.Unlock()
	base, earlier := r.currentState(), r.before[from]
	a.state, a.unsaved = a.policy.replacePod(base, r.pod.UID, earlier.pods.get(r.pod.UID)), true
	a.changed++
	r.changed, r.resumed = a.changed, nil
	if from >= r.exact {
		r.resumed = &earlier
	}
	r.before, r.exact = r.before[:from], min(from, r.exact)
}

// Commit writes the record, if it lacks the state. Call it before the first container of the pod starts. After an error the pod has its memory, but the
// record may lack it: call Undo(0), or Commit again. A second call after success does nothing.
func (r *PodReservation) Commit() error { return r.allocator.save() }
