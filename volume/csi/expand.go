// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"

	"github.com/seed81659283/nodeagent/volume"
)

// NodeExpand lets a volume grow that a pod has. A driver without EXPAND_VOLUME does that elsewhere, if at all.
func (p *Plugin) NodeExpand(ctx context.Context, v volume.Volume, e volume.Expansion) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.Timeout)
	defer cancel()
	op, err := p.begin(ctx, &v)
	if err != nil {
		return err
	}
	defer op.client.close()
	if !op.can[expands] {
		return nil
	}
	u := use{can: op.can}
	if u.secrets, err = p.secret(ctx, "nodeExpandSecretRef", op.spec.expandSecret); err != nil {
		return err
	}
	staged := v.StagingDir
	if !op.can[stages] {
		staged = ""
	}
	request := op.spec.expandRequest(publishPath(&v), staged, e.New, u)
	_, err = call(ctx, op.client, "NodeExpandVolume", op.client.node.NodeExpandVolume, request, values(u.secrets)...)
	return err
}
