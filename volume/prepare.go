// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// Prepare returns when all volumes are set up that the containers of a pod use. It is idempotent, and quick where nothing is
// to be done. The error says which volumes are missing, and why; they are tried again until Release is called, so that a later
// call may find them. A claim that the pod cannot use ends it at once; the other volumes are set up all the same.
func (v *Volumes) Prepare(ctx context.Context, pod *corev1.Pod) error {
	p, err := v.recordDesired(ctx, pod)
	if p != nil {
		v.needRun()
		v.signal()
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
	if err := v.awaitPhase(ctx, p, plan.Ready); err != nil {
		v.mu.Lock()
		p.gaveUp = true
		v.mu.Unlock()
		return fmt.Errorf("volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// recordDesired writes the volumes of a pod into its record and marks them as desired. It returns nil for a pod without volumes. The error
// names the volumes that the pod cannot have; the remaining volumes are recorded.
func (v *Volumes) recordDesired(ctx context.Context, pod *corev1.Pod) (*podState, error) {
	uid := string(pod.UID)
	if !record.IsPlainName(uid) {
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
		r := record.Pod{UID: uid, Name: p.name, Volumes: all.volumes}
		if err := r.Write(p.dir); err != nil {
			return nil, fmt.Errorf("write record: %w", err)
		}
		p.recorded = r
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.refused, uid)
	if refused != nil {
		v.refused[uid] = pod
	}
	if refused == nil || all.changed {
		delete(v.damaged, uid)
	}
	if len(p.recorded.Volumes) == 0 { // those of images alone
		delete(v.pods, uid)
		return nil, refused
	}
	v.pods[uid] = p
	v.setDesired(p, pod, all, names)
	return p, refused
}

// setDesired marks the recorded volumes of a pod as mounted or unmounted.
func (v *Volumes) setDesired(p *podState, pod *corev1.Pod, all recordable, names map[string]bool) {
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
			e.plan.Desired = plan.Unmounted
		case e.plan.Desired != plan.Mounted:
			e.plan.Desired, e.err = plan.Mounted, nil
		}
	}
}

// recordable is what the record of a pod has in it.
type recordable struct {
	volumes []record.Volume
	changed bool                // there is more in it than is recorded
	claimed map[string]*claimed // of what was added, by its name
}

// add adds a volume. One that is there already, as the pod has the same claim twice, gets one more name. A volume of a pod whose name is
// that of the PV of another one would have its directory, and is an error.
func (r *recordable) add(pod *corev1.Pod, vol record.Volume, c *claimed) error {
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
	if c != nil { // a restarted agent uses them while its API server is unavailable
		vol.Claim, vol.PV = claim.Trim(c.pvc, c.pv)
	}
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
		r, c, err := v.resolver.resolve(ctx, pod, vol)
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

// reserve reserves the device of a volume for a pod whose record is about to be written: see deviceTable.reserve.
func (v *Volumes) reserve(p *podState, r record.Volume) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.devices.reserve(p, r)
}

// unreserve removes the reservations of a pod, whose record is written or will not be.
func (v *Volumes) unreserve(p *podState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.devices.unreserve(p)
}
