// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package intree

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/volume"
)

// The events contain no host path.
func TestSlowReporterUsesKubeletText(t *testing.T) {
	var told []string
	tell := slowReporter(volume.Volume{
		PodDir: "/pods/u1", Dir: "/pods/u1/volumes/kubernetes.io~secret/key",
		Warn: func(reason, message string) { told = append(told, reason+": "+message) },
	})
	tell(10)
	tell(20)
	assert.Equal(t, []string{
		"VolumePermissionChangeInProgress: Setting volume ownership for u1/volumes/kubernetes.io~secret/key is taking longer than expected, " +
			"consider using OnRootMismatch - " + aboutPolicy,
		"VolumePermissionChangeInProgress: Setting volume ownership for u1/volumes/kubernetes.io~secret/key, processed 20 files.",
	}, told)
}
