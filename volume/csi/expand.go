// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"

	"github.com/seed81659283/nodeagent/volume"
)

// NodeExpand calls NodeExpandVolume of the driver, to expand the volume to expansion.NewSize. The volume must be set up. If
// the driver does not have the capability EXPAND_VOLUME, NodeExpand does nothing.
func (p *Plugin) NodeExpand(ctx context.Context, vol volume.Volume, expansion volume.Expansion) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	op, err := p.beginOperation(ctx, &vol)
	if err != nil {
		return err
	}
	defer op.client.close()
	if !op.can[canExpand] {
		return nil
	}
	u := callParams{can: op.can}
	if u.secrets, err = p.readSecret(ctx, "nodeExpandSecretRef", op.spec.expandSecret); err != nil {
		return err
	}
	staged := vol.StagingDir
	if !op.can[canStage] {
		staged = ""
	}
	request := op.spec.expandRequest(publishPath(&vol), staged, expansion.NewSize, u)
	_, err = invoke(ctx, op.client, "NodeExpandVolume", op.client.node.NodeExpandVolume, request, secretValues(u.secrets)...)
	return err
}
