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

// Prepare records the volumes that the containers of the pod use. It blocks until all of them are set up, ctx ends or
// Options.WaitTimeout has passed. It may be called again, and is fast if all volumes are set up.
//
// After a timeout, the error contains each missing volume with the cause. Run continues to set up the volumes until Release
// is called, and the caller can call Prepare again for the result. If the pod cannot use a claim, Prepare returns the error
// at once, and Run still sets up the other volumes.
func (v *Volumes) Prepare(ctx context.Context, pod *corev1.Pod) error {
	p, err := v.recordDesired(ctx, pod)
	if p != nil {
		v.requireRun()
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
		p.prepareFailed = true
		v.mu.Unlock()
		return fmt.Errorf("volumes of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// recordDesired writes the volumes that containers use to the pod's record on disk, and marks them for set-up. The error names
// the volumes that the pod cannot use.
func (v *Volumes) recordDesired(ctx context.Context, pod *corev1.Pod) (*podState, error) {
	uid := string(pod.UID)
	if !record.IsPlainName(uid) {
		return nil, fmt.Errorf("UID %.256q is no file name", uid)
	}
	names := podvolume.UsedByPod(&pod.Spec)
	p := v.ensurePod(pod, len(names) > 0)
	if p == nil {
		return nil, nil // the pod has no volumes
	}
	p.recording.Lock()
	defer p.recording.Unlock()
	return v.recordVolumes(ctx, p, pod)
}

// recordVolumes is recordDesired for a pod with volume state. The caller holds p.recording.
func (v *Volumes) recordVolumes(ctx context.Context, p *podState, pod *corev1.Pod) (*podState, error) {
	uid, names := p.uid, podvolume.UsedByPod(&pod.Spec)
	defer v.releaseReservations(p)
	all, refused := v.resolveUnrecorded(ctx, p, pod, names)
	adopts := v.isAdoptionPending(p)
	// A partial record would hide the other volumes of an adopted pod from the next start.
	if all.changed && !adopts || adopts && refused == nil {
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
	if len(p.recorded.Volumes) == 0 && (!adopts || refused == nil) { // all volumes are image volumes
		p.adoption = nil
		delete(v.pods, uid)
		return nil, refused
	}
	v.pods[uid] = p
	v.setDesired(p, pod, all, names)
	if refused == nil {
		p.adoption = nil
	}
	return p, refused
}

// setDesired sets the desired state of each recorded volume: Mounted for the used names, otherwise Unmounted. The caller holds
// v.mu.
func (v *Volumes) setDesired(state *podState, pod *corev1.Pod, all recordable, used map[string]bool) {
	state.spec, state.prepareFailed = pod, false
	for _, r := range state.recorded.Volumes {
		e := state.findVolume(r.Name)
		if e == nil {
			v.forgetIdentified(state, r.Dir)
			e = v.addVolume(state, r) // a new volume
			if state.adoption.isFound(r.Dir) {
				e.markUncertain()
			}
		}
		e.recorded.Aliases = r.Aliases
		if c := all.claimed[r.Name]; c != nil {
			e.claimed = c
		}
		switch {
		case !e.isUsedBy(used): // recorded for an older version of the pod
			e.plan.Desired = plan.Unmounted
		case e.plan.Desired != plan.Mounted:
			e.plan.Desired, e.err = plan.Mounted, nil
		}
	}
}

// recordable has the volumes for the next record of a pod. It is the result of resolveUnrecorded.
type recordable struct {
	volumes []record.Volume
	changed bool                // volumes differs from the record on disk
	claimed map[string]*claimed // by volume name: claims of the volumes that were added
}

// addVolume adds vol to r, the volumes for the next record of the pod, or makes it an alias of a volume with the same claim.
func (r *recordable) addVolume(pod *corev1.Pod, vol record.Volume, bound *claimed) error {
	for i := range r.volumes {
		known := &r.volumes[i]
		switch {
		case known.Dir != vol.Dir:
		case !hasSameClaim(pod, known.Name, vol.Name):
			// Directories are named after volumes or PVs, which can have equal names.
			return fmt.Errorf("volume %q has its directory, %s", known.Name, known.Dir)
		default:
			known.Aliases = append(slices.Clip(known.Aliases), vol.Name)
			r.changed = true
			return nil
		}
	}
	if bound != nil { // a restarted agent uses the recorded claim while the API server is unavailable
		vol.Claim, vol.PV = claim.TrimForRecord(bound.pvc, bound.pv)
	}
	r.volumes = append(r.volumes, vol)
	r.claimed[vol.Name] = bound
	r.changed = true
	return nil
}

// hasSameClaim reports whether two volumes of the pod use the same PersistentVolumeClaim. a and b are the names of the
// volumes.
func hasSameClaim(pod *corev1.Pod, a, b string) bool {
	first, second := podvolume.Find(pod, a), podvolume.Find(pod, b)
	if first == nil || second == nil {
		return false
	}
	one, ok := claim.NameOf(pod, first)
	other, okToo := claim.NameOf(pod, second)
	return ok && okToo && one == other
}

// resolveUnrecorded returns the volumes for the pod's record: the recorded ones, and the new ones that are used, whose devices
// it reserves. The error names volumes that the pod cannot use.
func (v *Volumes) resolveUnrecorded(ctx context.Context, state *podState, pod *corev1.Pod, used map[string]bool) (recordable, error) {
	ctx, cancel := context.WithTimeout(ctx, v.opts.StepTimeout)
	defer cancel()
	all := recordable{volumes: slices.Clone(state.recorded.Volumes), claimed: map[string]*claimed{}}
	used = maps.Clone(used)
	for _, r := range state.recorded.Volumes {
		for _, name := range append([]string{r.Name}, r.Aliases...) {
			delete(used, name)
		}
	}
	var errs []error
	var unmatched unmatchedError
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if !used[vol.Name] || podvolume.SourceOf(vol) == imageSource { // the container runtime mounts image volumes
			continue
		}
		delete(used, vol.Name)
		if slices.Contains(removedSources(), podvolume.SourceOf(vol)) {
			unmatched = append(unmatched, vol.Name)
			continue
		}
		r, c, err := v.resolver.resolveVolume(ctx, pod, vol)
		if err == nil {
			err = v.reserveDevice(state, r)
		}
		if err == nil {
			err = all.addVolume(pod, r, c)
		}
		if err != nil {
			errs = append(errs, &Error{StepSetUp, vol.Name, err})
		}
	}
	if unmatched != nil {
		errs = append(errs, unmatched)
	}
	if len(errs) > 0 {
		return all, joinErrors(errs)
	}
	return all, nil
}

// reserveDevice reserves the device of a planned volume for the pod, unless another volume uses the device in a conflicting way.
func (v *Volumes) reserveDevice(state *podState, planned record.Volume) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.devices.reserveDevice(state, planned)
}

// releaseReservations removes the device reservations of the pod with this state.
func (v *Volumes) releaseReservations(state *podState) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.devices.releaseReservations(state)
}
