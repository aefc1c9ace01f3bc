// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/lifecycle/objects"
)

const csiDriver = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: csi.example}
spec: {podInfoOnMount: true, volumeLifecycleModes: [Ephemeral]}
`

func TestCSIDriver(t *testing.T) {
	dir := t.TempDir()
	d := objects.NewDir(dir)
	_, err := d.CSIDriver(t.Context(), "csi.example")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "csidrivers"), 0o700))
	_, err = d.CSIDriver(t.Context(), "csi.example")
	require.ErrorIs(t, err, fs.ErrNotExist)
	file := filepath.Join(dir, "csidrivers", "csi.example.yaml")
	write := func(text string) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write(csiDriver)
	o, err := d.CSIDriver(t.Context(), "csi.example")
	require.NoError(t, err)
	require.True(t, *o.Spec.PodInfoOnMount)
	require.Equal(t, []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}, o.Spec.VolumeLifecycleModes)

	for want, text := range map[string]string{
		"want a storage.k8s.io/v1 CSIDriver":        strings.Replace(csiDriver, "storage.k8s.io/v1", "v1", 1),
		`metadata.name is "other"`:                  strings.Replace(csiDriver, "csi.example", "other", 1),
		"spec.volumeLifecycleModes[0]":              strings.Replace(csiDriver, "Ephemeral", "Eternal", 1),
		"spec.fsGroupPolicy":                        strings.Replace(csiDriver, "podInfo", "fsGroupPolicy: X, podInfo", 1),
		"spec.tokenRequests[1].audience":            strings.Replace(csiDriver, "podInfo", "tokenRequests: [{audience: a}, {audience: a}], podInfo", 1),
		"spec.tokenRequests[0].expirationSeconds 5": strings.Replace(csiDriver, "podInfo", "tokenRequests: [{audience: a, expirationSeconds: 5}], podInfo", 1),
		"unknown field":                             strings.Replace(csiDriver, "podInfo", "podInf: 1, podInfo", 1),
		"more than one document":                    csiDriver + "---\n" + csiDriver,
	} {
		write(text)
		_, err := d.CSIDriver(t.Context(), "csi.example")
		assert.ErrorContains(t, err, want)
		assert.ErrorContains(t, err, file)
	}
	_, err = d.CSIDriver(t.Context(), "../../etc/passwd")
	require.ErrorContains(t, err, "name: ")
}
