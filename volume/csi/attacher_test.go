// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/csi"
)

func TestAttacherReportsVolumesInUseBeforeItWaits(t *testing.T) {
	plugin, err := csi.New(csi.Options{Registry: t.TempDir()})
	require.NoError(t, err)
	reports := 0
	a := csi.Attacher{Plugin: plugin, Report: func(context.Context) error {
		reports++
		return errors.New("no API server")
	}}
	_, err = a.WaitForAttach(t.Context(), volume.Volume{})
	require.EqualError(t, err, "no API server")
	require.Equal(t, 1, reports)
	_, err = a.WaitForAttach(t.Context(), volume.Volume{Recovered: true})
	require.Error(t, err, "the volume has no CSI source")
	require.Equal(t, 1, reports, "a recovered volume is not reported again")
}
