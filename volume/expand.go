// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
)

// expandOnNode lets a volume grow on the node when its PV has.
func (pc *pluginCall) expandOnNode(ctx context.Context, plugin Plugin) (size int64, err error) {
	x, ok := plugin.(Expander)
	if !ok || pc.volume.PV == nil || pc.before.recorded.Device == nil {
		return 0, nil
	}
	g, due := claim.Grow(pc.volume.Claim, pc.volume.PV, pc.before.size)
	switch {
	case !due:
		return max(g.Old, 0), nil
	case pc.volume.ReadOnly:
		pc.volume.Warn(ReasonFileSystemResizeFailed, "MountVolume.NodeExpandVolume failed requested read-only file system")
		return g.Old, nil
	}
	if err := x.NodeExpand(ctx, pc.volume, Expansion{Old: g.Old, New: g.New}); err != nil {
		pc.volume.Warn(ReasonFileSystemResizeFailed, fmt.Sprintf("NodeExpandVolume failed for volume %q : %v", pc.volume.Spec, err))
		return 0, fmt.Errorf("expand volume to %d bytes: %w", g.New, err)
	}
	pc.events.record(pc.volume.Pod, corev1.EventTypeNormal, ReasonFileSystemResizeSuccessful, fmt.Sprintf("NodeExpandVolume succeeded for volume %q", pc.volume.Spec))
	if hook := pc.opts.Hooks.Expanded; hook != nil {
		hook(pc.volume.Claim, pc.volume.PV, g.New)
	}
	return g.New, nil
}
