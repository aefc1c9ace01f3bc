// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"

	"github.com/seed81659283/nodeagent/volume"
)

// Attacher implements [volume.Attacher] for a cluster whose controllers detach volumes: it reports a volume as in use before it
// waits for the attachment.
type Attacher struct {
	// Plugin waits for the VolumeAttachment of a volume. Required.
	Plugin *Plugin
	// Report returns after the API server has stored a Node status with the current volumesInUse, such as
	// heartbeat.Reporter.Report. Required.
	Report func(ctx context.Context) error
}

var _ volume.Attacher = Attacher{}

// WaitForAttach returns when v is attached and the API server has recorded that it is in use. Otherwise a controller could detach
// the volume while a pod has it mounted. A recovered volume is not reported again, because the previous agent has reported it.
func (a Attacher) WaitForAttach(ctx context.Context, vol volume.Volume) (devicePath string, err error) {
	if !vol.Recovered {
		if err := a.Report(ctx); err != nil {
			return "", err
		}
	}
	return a.Plugin.WaitForAttach(ctx, vol)
}
