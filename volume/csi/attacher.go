// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"

	"github.com/seed81659283/nodeagent/volume"
)

// Attacher waits for the volumes that controllers attach to a node of a cluster. It is a [volume.Attacher].
type Attacher struct {
	// Plugin finds the VolumeAttachment of a volume. Required.
	Plugin *Plugin
	// Report returns when the API server has the status of the Node with the volumes in use, such as heartbeat.Reporter.Report. Required.
	Report func(ctx context.Context) error
}

var _ volume.Attacher = Attacher{}

// WaitForAttach returns when v is attached and the API server has recorded that it is in use: a controller detaches a volume that no node reports
// in use, although a pod may have mounted it. A recovered volume is not reported again, because the previous agent has reported it.
func (a Attacher) WaitForAttach(ctx context.Context, v volume.Volume) (devicePath string, err error) {
	if !v.Recovered {
		if err := a.Report(ctx); err != nil {
			return "", err
		}
	}
	return a.Plugin.WaitForAttach(ctx, v)
}
