// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// PersistentVolumeClaim reads the claim from the file NAMESPACE/persistentvolumeclaims/NAME.yaml. A claim whose
// spec.volumeName is set is returned as bound, even if the file has no status. If the file does not exist, the error wraps
// fs.ErrNotExist.
func (d *Dir) PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	o := &corev1.PersistentVolumeClaim{}
	err := d.readObject(ctx, manifest{kindClaim, "v1", "PersistentVolumeClaim", namespace, name}, o, func() error { return completeClaim(o) })
	return orNil(o, err)
}

// PersistentVolume reads the volume from the file persistentvolumes/NAME.yaml. If the file does not exist, the error wraps
// fs.ErrNotExist.
func (d *Dir) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	o := &corev1.PersistentVolume{}
	err := d.readObject(ctx, manifest{kindPV, "v1", "PersistentVolume", "", name}, o, func() error { return completePV(o) })
	return orNil(o, err)
}

// PutPersistentVolumeClaim stores a copy of the claim. It replaces a stored claim of the same name. It returns an error if
// the claim is invalid.
func (m *Memory) PutPersistentVolumeClaim(claim *corev1.PersistentVolumeClaim) error {
	claim = claim.DeepCopy()
	err := m.claims.putObject(kindClaim, claim.Namespace, claim.Name, claim, completeClaim(claim))
	m.watchers.Notify(KindClaim, claim.Namespace, claim.Name)
	return err
}

// PutPersistentVolume stores a copy of the volume. It replaces a stored volume of the same name. It returns an error if the
// volume is invalid.
func (m *Memory) PutPersistentVolume(volume *corev1.PersistentVolume) error {
	volume = volume.DeepCopy()
	err := m.volumes.putObject(kindPV, "", volume.Name, volume, completePV(volume))
	m.watchers.Notify(KindPV, "", volume.Name)
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

// PersistentVolumeClaim returns the stored claim, which the caller must not change. If there is none, the error wraps
// fs.ErrNotExist.
func (m *Memory) PersistentVolumeClaim(_ context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return m.claims.getObject(kindClaim, namespace, name)
}

// PersistentVolume returns the stored volume, which the caller must not change. If there is none, the error wraps fs.ErrNotExist.
func (m *Memory) PersistentVolume(_ context.Context, name string) (*corev1.PersistentVolume, error) {
	return m.volumes.getObject(kindPV, "", name)
}

// completeClaim sets the fields of the claim that the API server would set, and validates it.
func completeClaim(claim *corev1.PersistentVolumeClaim) error {
	if name := claim.Spec.VolumeName; name != "" {
		if err := validateNames("default", name); err != nil {
			return fmt.Errorf("spec.volumeName: %w", err)
		}
		// With a volumeName, the claim is bound.
		if claim.Status.Phase == "" {
			claim.Status.Phase = corev1.ClaimBound
		}
		if claim.Status.Capacity == nil {
			claim.Status.Capacity = claim.Spec.Resources.Requests
		}
	}
	if claim.Spec.VolumeMode == nil {
		claim.Spec.VolumeMode = filesystemMode()
	}
	return validateAccess(claim.Spec.AccessModes, claim.Spec.VolumeMode)
}

// completePV sets the API server's defaults in the volume, and then validates the volume.
func completePV(volume *corev1.PersistentVolume) error {
	if volume.Spec.VolumeMode == nil {
		volume.Spec.VolumeMode = filesystemMode()
	}
	if size := volume.Spec.Capacity[corev1.ResourceStorage]; size.Sign() <= 0 {
		return fmt.Errorf("spec.capacity.storage %s: must be more than zero", size.String())
	}
	if len(volume.Spec.AccessModes) == 0 {
		return fmt.Errorf("spec.accessModes: required")
	}
	return validateAccess(volume.Spec.AccessModes, volume.Spec.VolumeMode)
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
