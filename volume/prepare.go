// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/volume/plan"
)

// Prepare returns when all volumes are set up that the containers of a pod mount. It is idempotent, and quick where nothing is
// to be done. The error says which volumes are missing, and why; they are tried again until Release is called, so that a later
// call may find them.
func (v *Volumes) Prepare(ctx context.Context, pod *corev1.Pod) error {
	p, err := v.want(pod)
	if err != nil {
		return fmt.Errorf("volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if p == nil {
		return nil
	}
	v.guard.Need(nil)
	v.poke()
	if err := v.wait(ctx, p, plan.Ready); err != nil {
		v.mu.Lock()
		p.gaveUp = true
		v.mu.Unlock()
		return fmt.Errorf("volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// Waiting returns what a pod waits for and why, one error for each volume, or nil where it does not wait.
func (v *Volumes) Waiting(uid string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[uid]
	if p == nil {
		return nil
	}
	errs := p.left(plan.Ready, time.Now())
	if len(errs) == 0 {
		return nil
	}
	return join(errs)
}

// want notes which volumes a pod is to have, in its record first. It returns nil for a pod without any.
func (v *Volumes) want(pod *corev1.Pod) (*podState, error) {
	uid := string(pod.UID)
	if !plainName(uid) {
		return nil, fmt.Errorf("UID %.256q is no file name", uid)
	}
	names := used(&pod.Spec)
	p := v.pod(pod, len(names) > 0)
	if p == nil {
		return nil, nil
	}
	p.recording.Lock()
	defer p.recording.Unlock()
	fresh, err := v.unrecorded(p, pod, names)
	if err != nil {
		return nil, err
	}
	if len(fresh) > 0 {
		r := record{UID: uid, Pod: p.name, Volumes: append(slices.Clip(p.recorded.Volumes), fresh...)}
		if err := r.write(p.dir); err != nil {
			return nil, fmt.Errorf("write record: %w", err)
		}
		p.recorded = r
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.damaged, uid)
	if len(p.recorded.Volumes) == 0 { // those of images alone
		delete(v.pods, uid)
		return nil, nil
	}
	v.pods[uid] = p
	p.spec, p.gaveUp = pod, false
	for _, r := range fresh {
		v.add(p, r)
	}
	for _, e := range p.volumes {
		switch {
		case !names[e.Name]: // the record is of another version of the pod
			e.Desired = plan.Unmounted
		case e.Desired != plan.Mounted:
			e.Desired, e.err = plan.Mounted, nil
		}
	}
	return p, nil
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

// unrecorded returns the volumes that the containers of a pod mount and that are not in its record.
func (v *Volumes) unrecorded(p *podState, pod *corev1.Pod, names map[string]bool) (fresh []recordedVolume, err error) {
	names = maps.Clone(names)
	for _, r := range p.recorded.Volumes {
		delete(names, r.Name)
	}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if !names[vol.Name] {
			continue
		}
		delete(names, vol.Name)
		name := sourceOf(vol)
		if name == imageSource {
			continue // which the runtime mounts
		}
		plugin := pluginNames()[name]
		if _, ok := v.opts.Plugins[plugin]; !ok || !plainName(vol.Name) {
			return nil, &Error{plan.SetUp, vol.Name, fmt.Errorf("there is no plugin for %s volumes", name)}
		}
		fresh = append(fresh, recordedVolume{vol.Name, plugin, volumeDir(plugin, vol.Name)})
	}
	return fresh, nil
}

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
	names := used(&pod.Spec)
	for _, e := range p.volumes {
		if e.Desired == plan.Unknown && names[e.Name] {
			e.Desired = plan.Mounted
		}
		if !same && v.shows(p, e, Object{Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name}) {
			e.Stale = true
			e.Retry()
		}
	}
	v.poke()
}

// Release tears down all volumes of a pod of which nothing runs any more, and removes what is on disk about them, also for a
// pod of which only the record is left. It returns when that is done, nil also where there is nothing. After an error it is
// called again: the teardown goes on meanwhile.
func (v *Volumes) Release(ctx context.Context, uid string) error {
	v.mu.Lock()
	p, damaged := v.pods[uid], v.damaged[uid]
	if p != nil {
		for _, e := range p.volumes {
			if e.Desired != plan.Unmounted {
				e.Desired, e.err = plan.Unmounted, nil
			}
			if e.Step == plan.SetUp || e.Step == plan.Remount {
				e.cancel() // it has become pointless
			}
		}
	}
	v.mu.Unlock()
	switch {
	case damaged != nil:
		return fmt.Errorf("release volumes of pod %s: record: %w", uid, damaged)
	case p == nil:
		return nil
	}
	v.guard.Need(nil)
	v.poke()
	if err := v.wait(ctx, p, plan.Absent); err != nil {
		return fmt.Errorf("release volumes of pod %s: %w", p.name, err)
	}
	if err := v.forget(p); err != nil {
		return fmt.Errorf("release volumes of pod %s: %w", p.name, err)
	}
	return nil
}

// forget removes the record of a pod whose volumes are torn down, unless they are wanted again.
func (v *Volumes) forget(p *podState) error {
	p.recording.Lock()
	defer p.recording.Unlock()
	v.mu.Lock()
	for _, e := range p.volumes {
		if e.Desired != plan.Unmounted || e.Phase != plan.Absent || e.Step != plan.None {
			v.mu.Unlock()
			return nil
		}
	}
	v.mu.Unlock()
	if err := removeRecord(p.dir, p.recorded); err != nil {
		return fmt.Errorf("remove record: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	gone := make(map[*plan.Volume]bool, len(p.volumes))
	for _, e := range p.volumes {
		gone[&e.Volume] = true
	}
	v.state.Volumes = deleteAll(v.state.Volumes, gone)
	p.volumes, p.recorded = nil, record{}
	if v.pods[p.uid] == p {
		delete(v.pods, p.uid)
	}
	return nil
}

// deleteAll returns the volumes without those that are gone.
func deleteAll(all []*plan.Volume, gone map[*plan.Volume]bool) []*plan.Volume {
	kept := all[:0]
	for _, vol := range all {
		if !gone[vol] {
			kept = append(kept, vol)
		}
	}
	clear(all[len(kept):])
	return kept
}
