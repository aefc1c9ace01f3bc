// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
)

// CSIDriver reads the CSIDriver object from the file csidrivers/NAME.yaml. If the file does not exist, the error wraps
// fs.ErrNotExist.
func (d *Dir) CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error) {
	o := &storagev1.CSIDriver{}
	err := d.readObject(ctx, manifest{kindCSIDriver, "storage.k8s.io/v1", "CSIDriver", "", name}, o, func() error { return validateCSIDriver(o) })
	return orNil(o, err)
}

// PutCSIDriver stores a copy of the CSIDriver object. It replaces a stored object of the same name. It returns an error if
// the object is invalid.
func (m *Memory) PutCSIDriver(driver *storagev1.CSIDriver) error {
	driver = driver.DeepCopy()
	err := m.csiDrivers.putObject(kindCSIDriver, "", driver.Name, driver, validateCSIDriver(driver))
	m.watchers.Notify(KindCSIDriver, "", driver.Name)
	return err
}

// DeleteCSIDriver deletes a CSI driver if it exists.
func (m *Memory) DeleteCSIDriver(name string) {
	m.csiDrivers.deleteObject("", name)
	m.watchers.Notify(KindCSIDriver, "", name)
}

// CSIDriver returns the stored CSIDriver object, which the caller must not change. If there is none, the error wraps
// fs.ErrNotExist.
func (m *Memory) CSIDriver(_ context.Context, name string) (*storagev1.CSIDriver, error) {
	return m.csiDrivers.getObject(kindCSIDriver, "", name)
}

// validateCSIDriver validates the fields of the CSIDriver object that matter for the setup of volumes.
func validateCSIDriver(driver *storagev1.CSIDriver) error {
	for i, mode := range driver.Spec.VolumeLifecycleModes {
		if mode != storagev1.VolumeLifecyclePersistent && mode != storagev1.VolumeLifecycleEphemeral {
			return fmt.Errorf("spec.volumeLifecycleModes[%d] %q: want Persistent or Ephemeral", i, mode)
		}
	}
	if p := driver.Spec.FSGroupPolicy; p != nil {
		switch *p {
		case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy:
		default:
			return fmt.Errorf("spec.fsGroupPolicy %q: want ReadWriteOnceWithFSType, File or None", *p)
		}
	}
	audiences := map[string]bool{}
	for i, r := range driver.Spec.TokenRequests {
		if audiences[r.Audience] {
			return fmt.Errorf("spec.tokenRequests[%d].audience %q is a duplicate", i, r.Audience)
		}
		audiences[r.Audience] = true
		if s := r.ExpirationSeconds; s != nil && (*s < 600 || *s > 1<<32) {
			return fmt.Errorf("spec.tokenRequests[%d].expirationSeconds %d: want 600 to %d", i, *s, int64(1)<<32)
		}
	}
	return nil
}
