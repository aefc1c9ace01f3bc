// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
)

// expandOnNode expands a volume on this node to the size of its PV, and returns its size in bytes, or zero if unknown.
func (pc *pluginCall) expandOnNode(ctx context.Context, plugin Plugin) (size int64, err error) {
	x, ok := plugin.(Expander)
	if !ok || pc.volume.PV == nil || pc.prior.recorded.Device == nil {
		return 0, nil
	}
	g, due := claim.PlanExpansion(pc.volume.Claim, pc.volume.PV, pc.prior.size)
	switch {
	case !due:
		return max(g.OldSize, 0), nil
	case pc.volume.ReadOnly:
		pc.volume.Warn(ReasonFileSystemResizeFailed, "MountVolume.NodeExpandVolume failed requested read-only file system")
		return g.OldSize, nil
	}
	if err := x.NodeExpand(ctx, pc.volume, Expansion{OldSize: g.OldSize, NewSize: g.NewSize}); err != nil {
		pc.volume.Warn(ReasonFileSystemResizeFailed, fmt.Sprintf("NodeExpandVolume failed for volume %q : %v", pc.volume.SpecName, err))
		return 0, fmt.Errorf("expand volume to %d bytes: %w", g.NewSize, err)
	}
	pc.events.recordEvent(pc.volume.Pod, corev1.EventTypeNormal, ReasonFileSystemResizeSuccessful, fmt.Sprintf("NodeExpandVolume succeeded for volume %q", pc.volume.SpecName))
	if hook := pc.opts.Hooks.Expanded; hook != nil {
		hook(pc.volume.Claim, pc.volume.PV, g.NewSize)
	}
	return g.NewSize, nil
}
