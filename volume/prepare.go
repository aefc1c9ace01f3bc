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

	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// Prepare returns when all volumes are set up that the containers of a pod use. It is idempotent, and quick where nothing is
// to be done. The error says which volumes are missing, and why; they are tried again until Release is called, so that a later
// call may find them. A claim that the pod cannot use ends it at once; the other volumes are set up all the same.
func (v *Volumes) Prepare(ctx context.Context, pod *corev1.Pod) error {
	p, err := v.want(ctx, pod)
	if p != nil {
		v.needRun()
		v.poke()
	}
	if _, ok := err.(unmatchedError); ok { //nolint:errorlint // alone, it has the kubelet's text
		return err
	}
	if err != nil {
		return fmt.Errorf("volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if p == nil {
		return nil
	}
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

// want notes which volumes a pod is to have, in its record first. It returns nil for a pod without any. The error is about volumes that
// it cannot have; the others are noted.
func (v *Volumes) want(ctx context.Context, pod *corev1.Pod) (*podState, error) {
	uid := string(pod.UID)
	if !plainName(uid) {
		return nil, fmt.Errorf("UID %.256q is no file name", uid)
	}
	names := podvolume.Used(&pod.Spec)
	p := v.pod(pod, len(names) > 0)
	if p == nil {
		return nil, nil
	}
	p.recording.Lock()
	defer p.recording.Unlock()
	defer v.unreserve(p)
	all, refused := v.unrecorded(ctx, p, pod, names)
	if all.changed {
		r := record{UID: uid, Pod: p.name, Volumes: all.volumes}
		if err := r.write(p.dir); err != nil {
			return nil, fmt.Errorf("write record: %w", err)
		}
		p.recorded = r
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.claims, uid)
	if refused != nil {
		v.claims[uid] = pod
	}
	if refused == nil || all.changed {
		delete(v.damaged, uid)
	}
	if len(p.recorded.Volumes) == 0 { // those of images alone
		delete(v.pods, uid)
		return nil, refused
	}
	v.pods[uid] = p
	v.wantAll(p, pod, all, names)
	return p, refused
}

// wantAll notes what is desired of the volumes in the record of a pod.
func (v *Volumes) wantAll(p *podState, pod *corev1.Pod, all recordable, names map[string]bool) {
	p.spec, p.gaveUp = pod, false
	for _, r := range p.recorded.Volumes {
		e := p.find(r.Name)
		if e == nil {
			e = v.add(p, r)
		}
		e.recorded.Also = r.Also
		if c := all.claimed[r.Name]; c != nil {
			e.claimed = c
		}
		switch {
		case !e.usedBy(names): // the record is of another version of the pod
			e.Desired = plan.Unmounted
		case e.Desired != plan.Mounted:
			e.Desired, e.err = plan.Mounted, nil
		}
	}
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

// recordable is what the record of a pod has in it.
type recordable struct {
	volumes []recordedVolume
	changed bool                // there is more in it than is recorded
	claimed map[string]*claimed // of what was added, by its name
}

// add adds a volume. One that is there already, as the pod has the same claim twice, gets one more name. A volume of a pod whose name is
// that of the PV of another one would have its directory, and is an error.
func (r *recordable) add(pod *corev1.Pod, vol recordedVolume, c *claimed) error {
	for i := range r.volumes {
		known := &r.volumes[i]
		switch {
		case known.Dir != vol.Dir:
		case !sameClaim(pod, known.Name, vol.Name):
			return fmt.Errorf("volume %q has its directory, %s", known.Name, known.Dir)
		default:
			known.Also = append(slices.Clip(known.Also), vol.Name)
			r.changed = true
			return nil
		}
	}
	vol.keep(c)
	r.volumes = append(r.volumes, vol)
	r.claimed[vol.Name] = c
	r.changed = true
	return nil
}

// sameClaim reports whether two volumes of a pod have the same claim.
func sameClaim(pod *corev1.Pod, a, b string) bool {
	first, second := podvolume.Find(pod, a), podvolume.Find(pod, b)
	if first == nil || second == nil {
		return false
	}
	one, ok := claim.Of(pod, first)
	other, okToo := claim.Of(pod, second)
	return ok && okToo && one == other
}

// unrecorded returns the record of a pod with the volumes that its containers use and that are not in it. The error is about those that
// the pod cannot have.
func (v *Volumes) unrecorded(ctx context.Context, p *podState, pod *corev1.Pod, names map[string]bool) (recordable, error) {
	ctx, cancel := context.WithTimeout(ctx, v.opts.Timeout)
	defer cancel()
	all := recordable{volumes: slices.Clone(p.recorded.Volumes), claimed: map[string]*claimed{}}
	names = maps.Clone(names)
	for _, r := range p.recorded.Volumes {
		for _, name := range append([]string{r.Name}, r.Also...) {
			delete(names, name)
		}
	}
	var errs []error
	var unmatched unmatchedError
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if !names[vol.Name] || podvolume.SourceOf(vol) == imageSource { // which the runtime mounts
			continue
		}
		delete(names, vol.Name)
		if slices.Contains(removedSources(), podvolume.SourceOf(vol)) {
			unmatched = append(unmatched, vol.Name)
			continue
		}
		r, c, err := v.record(ctx, pod, vol)
		if err == nil {
			err = v.reserve(p, r)
		}
		if err == nil {
			err = all.add(pod, r, c)
		}
		if err != nil {
			errs = append(errs, &Error{StepSetUp, vol.Name, err})
		}
	}
	if unmatched != nil {
		errs = append(errs, unmatched)
	}
	if len(errs) > 0 {
		return all, join(errs)
	}
	return all, nil
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
	names := podvolume.Used(&pod.Spec)
	for _, e := range p.volumes {
		if e.Desired == plan.Unknown && e.usedBy(names) {
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
	p, damaged := v.unwant(uid)
	switch {
	case damaged != nil:
		return fmt.Errorf("release volumes of pod %s: record: %w", uid, damaged)
	case p == nil:
		return nil
	}
	v.needRun()
	v.poke()
	shares := v.shares(p)
	for done := false; !done; {
		err := v.wait(ctx, p, plan.Absent)
		if err == nil {
			done, err = v.forget(p)
		}
		if err != nil {
			return fmt.Errorf("release volumes of pod %s: %w", p.name, err)
		}
	}
	if !shares {
		return nil
	}
	if uids := v.refused(); len(uids) > 0 {
		v.ready.Call(uids...)
	}
	return nil
}

// shares reports whether a pod has a volume with a device, which others may be refused as long as it is in use.
func (v *Volumes) shares(p *podState) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(p.volumes, func(e *entry) bool { return e.device != nil })
}

// refused returns the pods that cannot have one of their volumes so far.
func (v *Volumes) refused() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.claims))
}

// unwant notes that a pod is to have no volumes, and ends what has become pointless.
func (v *Volumes) unwant(uid string) (p *podState, damaged error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.claims, uid)
	p = v.pods[uid]
	if p == nil {
		return nil, v.damaged[uid]
	}
	for _, e := range p.volumes {
		if e.Desired != plan.Unmounted {
			e.Desired, e.err = plan.Unmounted, nil
		}
		if e.Step == plan.SetUp || e.Step == plan.Remount {
			e.cancel()
		}
		if d := e.device; d != nil && d.Step == plan.Stage && v.unwanted(d) {
			d.cancel()
		}
	}
	return p, v.damaged[uid]
}

// forget removes the record of a pod whose volumes are torn down, unless they are wanted again. It reports false where there is
// something to wait for still: it has become the last one of a device.
func (v *Volumes) forget(p *podState) (done bool, err error) {
	p.recording.Lock()
	defer p.recording.Unlock()
	v.mu.Lock()
	for _, e := range p.volumes {
		switch {
		case e.Desired != plan.Unmounted || e.Phase != plan.Absent || e.Step != plan.None:
			v.mu.Unlock()
			return true, nil
		case e.device != nil && e.device.last(p):
			v.mu.Unlock()
			return false, nil
		}
	}
	for _, e := range p.volumes {
		if e.device != nil {
			v.drop(p, e.device) // so that no other pod takes this record for one that stays
		}
	}
	v.mu.Unlock()
	err = removeRecord(p.dir, p.recorded)
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		for _, e := range p.volumes {
			if e.device != nil {
				e.device = v.hold(p, e.recorded)
				e.Device = &e.device.Device
			}
		}
		return false, fmt.Errorf("remove record: %w", err)
	}
	gone := make(map[*plan.Volume]bool, len(p.volumes))
	for _, e := range p.volumes {
		gone[&e.Volume] = true
	}
	v.state.Volumes = deleteAll(v.state.Volumes, gone)
	p.volumes, p.recorded = nil, record{}
	if v.pods[p.uid] == p {
		delete(v.pods, p.uid)
	}
	return true, nil
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
