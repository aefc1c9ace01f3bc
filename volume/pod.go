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

// podState is what is known of the volumes of a pod.
type podState struct {
	uid, dir string
	name     string      // namespace/name
	spec     *corev1.Pod // nil: an earlier agent had it, and nobody has said anything about it so far
	volumes  []*entry
	changed  chan struct{} // closed when a step has ended, and replaced
	gaveUp   bool          // a Prepare of it, since its volumes were last set up

	recording sync.Mutex // held while the record is written or removed
	recorded  record.Pod
}

// entry is a volume of a pod.
type entry struct {
	plan     plan.Volume
	recorded record.Volume
	device   *device  // that it shares; nil: none
	claimed  *claimed // as it was seen last; nil: it has no claim, or that was not seen
	mount    Mount    // once it was set up
	err      error    // of the step that has failed last; nil after one that succeeded

	cancel context.CancelFunc // ends the step under way; nil: there is none
}

func (v *Volumes) newPod(uid, name string) *podState {
	return &podState{uid: uid, name: name, dir: filepath.Join(v.opts.Root, uid), changed: make(chan struct{})}
}

// pod returns what is known of a pod. One that is new is there from then on, if it has volumes.
func (v *Volumes) pod(pod *corev1.Pod, volumes bool) *podState {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil && volumes {
		p = v.newPod(string(pod.UID), pod.Namespace+"/"+pod.Name)
		v.pods[p.uid] = p
	}
	return p
}

// add adds a volume to a pod.
func (v *Volumes) add(p *podState, r record.Volume) *entry {
	e := &entry{plan: plan.Volume{Pod: p.uid, Name: r.Name}, recorded: r}
	if r.Device != nil {
		e.device = v.devices.addUser(p, r)
		e.plan.Device = &e.device.plan
	}
	p.volumes = append(p.volumes, e)
	v.plan.Volumes = append(v.plan.Volumes, &e.plan)
	return e
}

// find returns a volume of a pod by its first name, or nil.
func (p *podState) find(name string) *entry {
	for _, e := range p.volumes {
		if e.plan.Name == name {
			return e
		}
	}
	return nil
}

// usedBy reports whether one of its names is among those that containers use.
func (e *entry) usedBy(names map[string]bool) bool {
	return slices.ContainsFunc(e.recorded.Names(), func(name string) bool { return names[name] })
}

// source returns the volume of the pod, by the first of its names that it still has; nil: it has none.
func (e *entry) source(pod *corev1.Pod) *corev1.Volume {
	for _, name := range e.recorded.Names() {
		if vol := podvolume.Find(pod, name); vol != nil {
			return vol
		}
	}
	return nil
}

// readOnly reports whether a pod has a volume read-only, under all of its names.
func (e *entry) readOnly(pod *corev1.Pod) bool {
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

// notify wakes those who wait for a volume of the pod.
func (p *podState) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}
