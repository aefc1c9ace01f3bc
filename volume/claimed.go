// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
)

// claimed is what a volume with a claim is made of.
type claimed struct {
	pvc *corev1.PersistentVolumeClaim
	pv  *corev1.PersistentVolume
}

// resolve fetches the claim of a volume and what it is bound to, and checks both. It returns nil for a volume without one.
func (v *Volumes) resolve(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (*claimed, error) {
	name, ok := claim.Of(pod, vol)
	if !ok {
		return nil, nil
	}
	if v.opts.Claims == nil {
		return nil, claim.Error(pod.Namespace, name, errors.New("this node has no claims"))
	}
	pvc, err := v.opts.Claims.PersistentVolumeClaim(ctx, pod.Namespace, name)
	if err != nil {
		return nil, claim.Error(pod.Namespace, name, unknown(err))
	}
	if err := claim.Check(pod, vol, pvc); err != nil {
		return nil, err
	}
	pv, err := v.opts.Claims.PersistentVolume(ctx, pvc.Spec.VolumeName)
	if err != nil {
		return nil, claim.Error(pod.Namespace, name, unknown(err))
	}
	if err := claim.CheckVolume(pod, vol, pvc, pv); err != nil {
		return nil, err
	}
	return &claimed{pvc, pv}, nil
}

// is reports whether a volume with a claim is made of an object.
func (c *claimed) is(o Object) bool {
	if c == nil {
		return false
	}
	return (o.Kind == KindClaim || o.Kind == "") && (o.Name == "" || o.Name == c.pvc.Name) ||
		(o.Kind == KindPV || o.Kind == "") && (o.Name == "" || o.Name == c.pv.Name)
}

// waitsFor reports whether a pod that cannot use one of its claims may be able to when an object has changed. Which volume a claim is
// bound to is not known.
func waitsFor(pod *corev1.Pod, o Object) bool {
	if o.Kind == KindPV || o.Kind == "" {
		return true
	}
	for i := range pod.Spec.Volumes {
		name, ok := claim.Of(pod, &pod.Spec.Volumes[i])
		if ok && o.Kind == KindClaim && (o.Namespace == "" || o.Namespace == pod.Namespace) && (o.Name == "" || o.Name == name) {
			return true
		}
	}
	return false
}

// record returns what is recorded of a volume: which plugin makes it, where it is, and what it shares.
func (v *Volumes) record(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (recordedVolume, *claimed, error) {
	r := recordedVolume{Name: vol.Name}
	c, err := v.resolve(ctx, pod, vol)
	if err != nil {
		return r, nil, err
	}
	spec, source := vol.Name, podvolume.SourceOf(vol)
	if c != nil {
		spec, source = c.pv.Name, podvolume.PVSourceOf(c.pv)
		r.Block = claim.Block(c.pv)
	}
	r.Plugin = pluginNames()[source]
	plugin, ok := v.opts.Plugins[r.Plugin]
	if !ok || !plainName(vol.Name) || !plainName(spec) {
		return r, nil, fmt.Errorf("there is no plugin for %s volumes", source)
	}
	r.Dir = volumeDir(r.Plugin, spec, r.Block)
	if r.SELinuxLabel, err = v.label(ctx, pod, vol, r, c); err != nil {
		return r, nil, err
	}
	stager, ok := plugin.(Stager)
	switch {
	case ok:
		d, err := stager.Device(ctx, v.describe(pod, vol, r, c))
		if err != nil {
			return r, nil, unknown(err)
		}
		if d.Name != "" {
			if err := d.validate(); err != nil {
				return r, nil, err
			}
			r.Device = &d
		}
	case !r.Block && c != nil && len(claim.MountOptions(c.pv)) > 0 && !mountsWithOptions(r.Plugin):
		return r, nil, errors.New("mount options are not supported for this volume type")
	}
	if r.Block && (r.Device == nil || r.Device.MapDir == "") {
		return r, nil, fmt.Errorf("%s volumes cannot be block devices", source)
	}
	return r, c, nil
}

// label returns the SELinux label that a volume is mounted with; empty: with none. Containers of a pod that have different ones cannot
// share a PV, whatever its plugin.
func (v *Volumes) label(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume, r recordedVolume, c *claimed) (string, error) {
	if c == nil {
		return "", nil
	}
	label, err := v.opts.SELinux.node().Mount(pod, vol.Name)
	if err == nil && len(label) > maxLabel {
		err = fmt.Errorf("SELinux label has more than %d bytes", maxLabel)
	}
	if err != nil || label == "" || r.Block {
		return "", err
	}
	mounter, ok := v.opts.Plugins[r.Plugin].(SELinuxMounter)
	if !ok {
		return "", nil
	}
	if can, err := mounter.MountsWithLabel(ctx, v.describe(pod, vol, r, c)); err != nil || !can {
		return "", unknown(err)
	}
	return label, nil
}

// mountsWithOptions reports whether a plugin that stages nothing takes the mount options of PVs.
func mountsWithOptions(plugin string) bool { return plugin == NFS }

// describe returns a volume as a plugin sees it that says what the volume shares.
func (v *Volumes) describe(pod *corev1.Pod, vol *corev1.Volume, r recordedVolume, c *claimed) Volume {
	d := Volume{
		Pod: pod, Source: vol, UID: string(pod.UID), Name: r.Name, Spec: r.spec(), Plugin: r.Plugin, PluginDir: v.opts.PluginDir,
		Block: r.Block, SELinuxLabel: r.SELinuxLabel, ReadOnly: podvolume.ReadOnly(vol), Warn: func(string, string) {},
	}
	d.fill(c)
	return d
}

// fill adds what a claim is made of.
func (v *Volume) fill(c *claimed) {
	if c != nil {
		v.Claim, v.PV, v.MountOptions = c.pvc, c.pv, claim.MountOptions(c.pv)
	}
}

// same returns an error where a volume is another one than that which is recorded.
func (v *recordedVolume) same(now recordedVolume) error {
	switch {
	case now.Plugin != v.Plugin || now.Dir != v.Dir:
		return fmt.Errorf("it is %s now, and was set up as %s", now.Dir, v.Dir)
	case (now.Device == nil) != (v.Device == nil) || now.Device != nil && now.Device.Name != v.Device.Name:
		return errors.New("its device is another one than that which was staged")
	}
	return nil
}

// Groups returns the supplemental groups that the volumes of a pod ask for and that it does not have already, once they are set up: for
// Options.VolumeGroups of package podspec.
func (v *Volumes) Groups(pod *corev1.Pod) []int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.pods[string(pod.UID)]
	if p == nil {
		return nil
	}
	var has, groups []int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		has = sc.SupplementalGroups
	}
	for _, e := range p.volumes {
		if e.claimed == nil {
			continue
		}
		if gid, ok := claim.Group(e.claimed.pv); ok && !slices.Contains(has, gid) && !slices.Contains(groups, gid) {
			groups = append(groups, gid)
		}
	}
	return groups
}
