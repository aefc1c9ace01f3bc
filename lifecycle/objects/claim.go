// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// PersistentVolumeClaim reads a claim. A claim with spec.volumeName is bound even if its manifest has no status.
func (d *Dir) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	o := &corev1.PersistentVolumeClaim{}
	err := d.readObject(ctx, manifest{kindClaim, "v1", "PersistentVolumeClaim", namespace, name}, o, func() error { return completeClaim(o) })
	return orNil(o, err)
}

// PersistentVolume reads the volume in persistentvolumes/NAME.yaml.
func (d *Dir) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	o := &corev1.PersistentVolume{}
	err := d.readObject(ctx, manifest{kindPV, "v1", "PersistentVolume", "", name}, o, func() error { return completePV(o) })
	return orNil(o, err)
}

// PutPersistentVolumeClaim stores a copy of o, and replaces the claim of that name. It returns an error if o is invalid.
func (m *Memory) PutPersistentVolumeClaim(o *corev1.PersistentVolumeClaim) error {
	o = o.DeepCopy()
	err := m.claims.putObject(kindClaim, o.Namespace, o.Name, o, completeClaim(o))
	m.watchers.Notify(KindClaim, o.Namespace, o.Name)
	return err
}

// PutPersistentVolume stores a copy of o, and replaces the volume of that name. It returns an error if o is invalid.
func (m *Memory) PutPersistentVolume(o *corev1.PersistentVolume) error {
	o = o.DeepCopy()
	err := m.volumes.putObject(kindPV, "", o.Name, o, completePV(o))
	m.watchers.Notify(KindPV, "", o.Name)
	return err
}

// DeletePersistentVolumeClaim deletes a claim if it exists.
func (m *Memory) DeletePersistentVolumeClaim(namespace, name string) {
	m.claims.deleteObject(namespace, name)
	m.watchers.Notify(KindClaim, namespace, name)
}

// DeletePersistentVolume deletes a volume if it exists.
func (m *Memory) DeletePersistentVolume(name string) {
	m.volumes.deleteObject("", name)
	m.watchers.Notify(KindPV, "", name)
}

// PersistentVolumeClaim returns a claim.
func (m *Memory) PersistentVolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return m.claims.getObject(kindClaim, namespace, name)
}

// PersistentVolume returns a volume.
func (m *Memory) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return m.volumes.getObject(kindPV, "", name)
}

// completeClaim sets the defaults of the API server and the status of a bound claim, and validates the claim.
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
		o.Spec.VolumeMode = filesystemMode()
	}
	return validateAccess(o.Spec.AccessModes, o.Spec.VolumeMode)
}

// completePV sets the defaults of the API server and validates the volume.
func completePV(o *corev1.PersistentVolume) error {
	if o.Spec.VolumeMode == nil {
		o.Spec.VolumeMode = filesystemMode()
	}
	if size := o.Spec.Capacity[corev1.ResourceStorage]; size.Sign() <= 0 {
		return fmt.Errorf("spec.capacity.storage %s: must be more than zero", size.String())
	}
	if len(o.Spec.AccessModes) == 0 {
		return fmt.Errorf("spec.accessModes: required")
	}
	return validateAccess(o.Spec.AccessModes, o.Spec.VolumeMode)
}

func filesystemMode() *corev1.PersistentVolumeMode {
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
