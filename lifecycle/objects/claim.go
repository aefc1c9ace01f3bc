// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// PersistentVolumeClaim reads a claim. Without a controller it is bound to the volume that it names: a file need have no status.
func (d *Dir) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	o := &corev1.PersistentVolumeClaim{}
	err := d.read(ctx, manifest{kindClaim, "v1", "PersistentVolumeClaim", namespace, name}, o, func() error { return completeClaim(o) })
	return orNil(o, err)
}

// PersistentVolume reads a volume, at persistentvolumes/NAME.yaml.
func (d *Dir) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	o := &corev1.PersistentVolume{}
	err := d.read(ctx, manifest{kindPV, "v1", "PersistentVolume", "", name}, o, func() error { return completePV(o) })
	return orNil(o, err)
}

// PutPersistentVolumeClaim takes a copy of a claim, in place of the one of its name. An error says why it is not valid.
func (m *Memory) PutPersistentVolumeClaim(o *corev1.PersistentVolumeClaim) error {
	o = o.DeepCopy()
	err := m.claims.put(kindClaim, o.Namespace, o.Name, o, completeClaim(o))
	m.watchers.Notify(KindClaim, o.Namespace, o.Name)
	return err
}

// PutPersistentVolume takes a copy of a volume, in place of the one of its name. An error says why it is not valid.
func (m *Memory) PutPersistentVolume(o *corev1.PersistentVolume) error {
	o = o.DeepCopy()
	err := m.volumes.put(kindPV, "", o.Name, o, completePV(o))
	m.watchers.Notify(KindPV, "", o.Name)
	return err
}

// DeletePersistentVolumeClaim forgets a claim, if it is there.
func (m *Memory) DeletePersistentVolumeClaim(namespace, name string) {
	m.claims.drop(namespace, name)
	m.watchers.Notify(KindClaim, namespace, name)
}

// DeletePersistentVolume forgets a volume, if it is there.
func (m *Memory) DeletePersistentVolume(name string) {
	m.volumes.drop("", name)
	m.watchers.Notify(KindPV, "", name)
}

// PersistentVolumeClaim returns a claim.
func (m *Memory) PersistentVolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return m.claims.get(kindClaim, namespace, name)
}

// PersistentVolume returns a volume.
func (m *Memory) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return m.volumes.get(kindPV, "", name)
}

// completeClaim fills in what a controller would, and checks the rest.
func completeClaim(o *corev1.PersistentVolumeClaim) error {
	if name := o.Spec.VolumeName; name != "" {
		if err := validateNames("default", name); err != nil {
			return fmt.Errorf("spec.volumeName: %w", err)
		}
		if o.Status.Phase == "" {
			o.Status.Phase = corev1.ClaimBound
		}
		if o.Status.Capacity == nil {
			o.Status.Capacity = o.Spec.Resources.Requests
		}
	}
	if o.Spec.VolumeMode == nil {
		o.Spec.VolumeMode = filesystem()
	}
	return validateAccess(o.Spec.AccessModes, o.Spec.VolumeMode)
}

// completePV fills in the defaults of the API server, and checks the rest.
func completePV(o *corev1.PersistentVolume) error {
	if o.Spec.VolumeMode == nil {
		o.Spec.VolumeMode = filesystem()
	}
	if size := o.Spec.Capacity[corev1.ResourceStorage]; size.Sign() <= 0 {
		return fmt.Errorf("spec.capacity.storage %s: must be more than zero", size.String())
	}
	if len(o.Spec.AccessModes) == 0 {
		return fmt.Errorf("spec.accessModes: required")
	}
	return validateAccess(o.Spec.AccessModes, o.Spec.VolumeMode)
}

func filesystem() *corev1.PersistentVolumeMode {
	mode := corev1.PersistentVolumeFilesystem
	return &mode
}

func validateAccess(modes []corev1.PersistentVolumeAccessMode, volumeMode *corev1.PersistentVolumeMode) error {
	for i, mode := range modes {
		switch mode {
		case corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod:
		default:
			return fmt.Errorf("spec.accessModes[%d] %q: want ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod", i, mode)
		}
	}
	if *volumeMode != corev1.PersistentVolumeFilesystem && *volumeMode != corev1.PersistentVolumeBlock {
		return fmt.Errorf("spec.volumeMode %q: want Filesystem or Block", *volumeMode)
	}
	return nil
}
