// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"

	"github.com/seed81659283/nodeagent/volume"
)

// Attacher implements [volume.Attacher] for a cluster whose controllers attach and detach volumes. Before it waits for the
// attachment of a volume, it reports the volume as in use, so that no controller detaches it.
type Attacher struct {
	// Plugin waits for the VolumeAttachment of a volume. Required.
	Plugin *Plugin
	// Report returns after the API server has stored a Node status with the current volumesInUse, such as
	// heartbeat.Reporter.Report. Required.
	Report func(ctx context.Context) error
}

var _ volume.Attacher = Attacher{}

// WaitForAttach calls Report, and then blocks until the volume is attached. Without the report, a controller could detach the
// mounted volume. A recovered volume was reported by the previous agent process. devicePath is the name of the VolumeAttachment.
func (a Attacher) WaitForAttach(ctx context.Context, vol volume.Volume) (devicePath string, err error) {
	if !vol.Recovered {
		if err := a.Report(ctx); err != nil {
			return "", err
		}
	}
	return a.Plugin.WaitForAttach(ctx, vol)
}
