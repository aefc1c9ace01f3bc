// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/volume"
)

// InUse returns the names of the volumes in use.
func (a *agent) InUse() (names []string) {
	list, known := a.VolumesInUse()
	require.True(a.t, known)
	for _, name := range list {
		names = append(names, string(name))
	}
	return names
}

func TestVolumesInUseUnknownForNilVolumes(t *testing.T) {
	var v *volume.Volumes
	_, known := v.VolumesInUse()
	require.False(t, known)
}
