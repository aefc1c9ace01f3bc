// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/csitest"
	"github.com/seed81659283/nodeagent/volume/csi"
)

// The label is passed on stage and publish, and is stored in vol_data.json. The files are not relabeled, and the mount options of
// the PV are not changed.
func TestDriverReceivesSELinuxLabel(t *testing.T) {
	yes := true
	c := driverObject(func(s *storagev1.CSIDriverSpec) { s.SELinuxMount = &yes })
	e := newEnv(t, csitest.Options{Capabilities: csitest.AllCapabilities()}, csi.Options{Drivers: c})
	v := e.newPersistentVolume(false)
	can, err := e.plugin.MountsWithLabel(t.Context(), v)
	require.NoError(t, err)
	require.True(t, can)

	v.SELinuxLabel = "system_u:object_r:container_file_t:s0:c1,c2"
	require.NoError(t, e.plugin.Stage(t.Context(), v))
	m, err := e.plugin.SetUp(t.Context(), v)
	require.NoError(t, err)
	assert.False(t, m.SELinuxRelabel)
	want := []string{"noatime", `context="system_u:object_r:container_file_t:s0:c1,c2"`}
	calls := e.driver.Calls()
	require.Len(t, calls, 2)
	assert.Equal(t, want, calls[0].Request.(*spec.NodeStageVolumeRequest).GetVolumeCapability().GetMount().GetMountFlags())
	assert.Equal(t, want, calls[1].Request.(*spec.NodePublishVolumeRequest).GetVolumeCapability().GetMount().GetMountFlags())
	assert.Equal(t, []string{"noatime"}, v.PV.Spec.MountOptions)
	for _, dir := range []string{v.Dir, filepath.Dir(v.StagingDir)} {
		assert.Equal(t, v.SELinuxLabel, readVolData(t, dir)["seLinuxMountContext"], dir)
	}
	require.NoError(t, e.plugin.TearDown(t.Context(), asRecorded(v)))
	require.NoError(t, e.plugin.Unstage(t.Context(), asRecorded(v)))
	assert.NoDirExists(t, v.Dir)
	assert.NoDirExists(t, filepath.Dir(v.StagingDir))
}

func TestMountsWithLabelFollowsCSIDriver(t *testing.T) {
	no := false
	for name, c := range map[string]*cluster{"no object": {}, "not said": driverObject(nil), "no": driverObject(func(s *storagev1.CSIDriverSpec) { s.SELinuxMount = &no })} {
		e := newEnv(t, csitest.Options{}, csi.Options{Drivers: c})
		can, err := e.plugin.MountsWithLabel(t.Context(), e.newPersistentVolume(false))
		require.NoError(t, err, name)
		assert.False(t, can, name)
	}
	e := newEnv(t, csitest.Options{}, csi.Options{Drivers: failingDrivers{}})
	v := e.newInlineVolume(nil)
	_, err := e.plugin.MountsWithLabel(t.Context(), v)
	require.ErrorIs(t, err, errUnavailable)
	v.Source.CSI = nil
	_, err = e.plugin.MountsWithLabel(t.Context(), v)
	require.ErrorContains(t, err, "not a CSI volume")
}

// errUnavailable is the error of an unavailable API server.
var errUnavailable = errors.New("the API server is gone")

type failingDrivers struct{}

func (failingDrivers) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	return nil, errUnavailable
}
