// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// podState is the state of the volumes of one pod. Volumes.mu guards it, except recorded.
type podState struct {
	uid, dir      string
	name          string      // namespace/name of the pod
	spec          *corev1.Pod // nil: read from the record, and neither Prepare nor Update was called for the pod yet
	volumes       []*entry
	changed       chan struct{} // closed and replaced when a step has completed
	adoption      *adoption     // nil: the volumes are recorded
	prepareFailed bool          // Prepare has returned an error, and not all volumes are set up since

	recording sync.Mutex // held while the record is written or removed; guards recorded
	recorded  record.Pod
}

// entry is the state of one volume of a pod. Volumes.mu guards it.
type entry struct {
	plan     plan.Volume
	recorded record.Volume
	device   *device  // device that pods share; nil: none
	claimed  *claimed // claim and PV as last fetched; nil: no claim, or not fetched yet
	mount    Mount    // result of the last successful set-up
	err      error    // error of the last failed step; nil after a success

	cancel context.CancelFunc // cancels the running step; nil: no step is running
}

func (v *Volumes) newPod(uid, name string) *podState {
	return &podState{uid: uid, name: name, dir: filepath.Join(v.opts.Root, uid), changed: make(chan struct{})}
}

// ensurePod returns the volume state of the pod. If there is no state yet, it creates the state for a pod that uses volumes,
// and returns nil for other pods.
func (v *Volumes) ensurePod(pod *corev1.Pod, usesVolumes bool) *podState {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil && usesVolumes {
		p = v.newPod(string(pod.UID), pod.Namespace+"/"+pod.Name)
		v.pods[p.uid] = p
	}
	p.nameAdopted(pod)
	return p
}

// nameAdopted sets the name of a pod whose volumes were found on disk. p may be nil. The caller holds Volumes.mu.
func (p *podState) nameAdopted(pod *corev1.Pod) {
	if p != nil && p.adoption != nil && p.name == p.uid {
		p.name = pod.Namespace + "/" + pod.Name
	}
}

// addVolume adds a recorded volume to the state of the pod, the plan, and the users of its device. The caller holds v.mu, except
// in New.
func (v *Volumes) addVolume(state *podState, recorded record.Volume) *entry {
	e := &entry{plan: plan.Volume{Pod: state.uid, Name: recorded.Name}, recorded: recorded}
	if recorded.Device != nil {
		e.device = v.devices.addUser(state, recorded)
		e.plan.Device = &e.device.plan
	}
	state.volumes = append(state.volumes, e)
	v.plan.Volumes = append(v.plan.Volumes, &e.plan)
	return e
}

// findVolume returns the volume that was recorded under this name, and not under an alias. It returns nil if there is none.
func (p *podState) findVolume(name string) *entry {
	for _, e := range p.volumes {
		if e.plan.Name == name {
			return e
		}
	}
	return nil
}

// isUsedBy reports whether containers use the volume. used has the volume names that containers mount or map.
func (e *entry) isUsedBy(used map[string]bool) bool {
	return slices.ContainsFunc(e.recorded.Names(), func(name string) bool { return used[name] })
}

// podSource returns the first volume in the pod spec with the name or an alias of e, or nil. Volumes with the same claim are
// aliases.
func (e *entry) podSource(pod *corev1.Pod) *corev1.Volume {
	for _, name := range e.recorded.Names() {
		if vol := podvolume.Find(pod, name); vol != nil {
			return vol
		}
	}
	return nil
}

// isReadOnly reports whether the pod spec declares the volume read-only. If several volumes in the pod spec name the same
// claim, all of these must be read-only.
func (e *entry) isReadOnly(pod *corev1.Pod) bool {
	found := false
	for _, name := range e.recorded.Names() {
		if vol := podvolume.Find(pod, name); vol != nil {
			if !podvolume.ReadOnly(vol) {
				return false
			}
			found = true
		}
	}
	return found
}

// notifyWaiters wakes the goroutines that wait in awaitPhase for volumes of the pod. The caller holds Volumes.mu.
func (p *podState) notifyWaiters() {
	close(p.changed)
	p.changed = make(chan struct{})
}
