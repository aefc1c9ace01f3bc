// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
)

const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: disk, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

const disk = `apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], claimRef: {namespace: default, name: data}, local: {path: /disk}}
`

// claims are the objects of Memory and Dir in these tests.
type claims interface {
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
}

func TestClaimAndVolumeDefaults(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"default/persistentvolumeclaims/data.yaml": claim, "persistentvolumes/disk.yaml": disk, "csidrivers/csi.example.yaml": csiDriver,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	m := &objects.Memory{}
	pvc, pv, driver := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &storagev1.CSIDriver{}
	require.NoError(t, yaml.Unmarshal([]byte(claim), pvc))
	require.NoError(t, yaml.Unmarshal([]byte(disk), pv))
	require.NoError(t, yaml.Unmarshal([]byte(csiDriver), driver))
	pvc.Namespace = "default"
	require.NoError(t, m.PutPersistentVolumeClaim(pvc))
	require.NoError(t, m.PutPersistentVolume(pv))
	require.NoError(t, m.PutCSIDriver(driver))
	for name, from := range map[string]claims{"dir": objects.NewDir(dir), "memory": m} {
		t.Run(name, func(t *testing.T) {
			c, err := from.PersistentVolumeClaim(t.Context(), "default", "data")
			require.NoError(t, err)
			require.Equal(t, corev1.ClaimBound, c.Status.Phase)
			require.Equal(t, "1Gi", c.Status.Capacity.Storage().String())
			require.Equal(t, corev1.PersistentVolumeFilesystem, *c.Spec.VolumeMode)
			v, err := from.PersistentVolume(t.Context(), c.Spec.VolumeName)
			require.NoError(t, err)
			require.Equal(t, c.UID, v.Spec.ClaimRef.UID)
			_, err = from.CSIDriver(t.Context(), "csi.example")
			require.NoError(t, err)
			_, err = from.PersistentVolume(t.Context(), "other")
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorContains(t, err, "read persistent volume other")
			_, err = from.PersistentVolumeClaim(t.Context(), "other", "data")
			require.ErrorIs(t, err, fs.ErrNotExist)
		})
	}
	m.DeletePersistentVolume("disk")
	m.DeletePersistentVolumeClaim("default", "data")
	m.DeleteCSIDriver("csi.example")
	_, err := m.PersistentVolume(t.Context(), "disk")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestInvalidClaims(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "persistentvolumes"), 0o700))
	d := objects.NewDir(dir)
	for want, change := range map[string][2]string{
		"spec.capacity.storage 0":           {"1Gi", "0"},
		"spec.accessModes: required":        {"[ReadWriteOnce]", "[]"},
		"spec.accessModes[0] \"Once\"":      {"[ReadWriteOnce]", "[Once]"},
		"spec.volumeMode \"Tape\"":          {"capacity", "volumeMode: Tape, capacity"},
		"metadata.namespace is \"default\"": {"{name: disk}", "{name: disk, namespace: default}"},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "persistentvolumes/disk.yaml"), []byte(strings.Replace(disk, change[0], change[1], 1)), 0o600))
		_, err := d.PersistentVolume(t.Context(), "disk")
		assert.ErrorContains(t, err, want)
	}
	_, err := d.PersistentVolume(t.Context(), "../../etc/passwd")
	require.ErrorContains(t, err, "name: ")
	m := &objects.Memory{}
	bad := &corev1.PersistentVolumeClaim{}
	bad.Namespace, bad.Name, bad.Spec.VolumeName = "default", "data", "../x"
	require.ErrorContains(t, m.PutPersistentVolumeClaim(bad), "spec.volumeName")
}

// Files of claims and volumes are watched, also in new directories.
func TestWatchClaims(t *testing.T) {
	dir := t.TempDir()
	notifications := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- objects.NewDir(dir).Watch(ctx, func(kind, namespace, name string) { notifications <- kind + " " + namespace + "/" + name })
	}()
	awaitNotification := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-notifications:
				if got == want {
					return
				}
			case <-time.After(time.Minute):
				require.Fail(t, "missing notification", want)
			}
		}
	}

	awaitNotification(" /")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "persistentvolumes"), 0o700))
	awaitNotification("PersistentVolume /")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "persistentvolumes/disk.yaml"), []byte(disk), 0o600))
	awaitNotification("PersistentVolume /disk")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "default/persistentvolumeclaims"), 0o700))
	awaitNotification(" default/")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "default/persistentvolumeclaims/data.yaml"), []byte(claim), 0o600))
	for got := range notifications { // the file may already exist when the directory is found
		if got == "PersistentVolumeClaim default/data" || got == " default/" {
			break
		}
	}
	cancel()
	require.NoError(t, <-done)
}
