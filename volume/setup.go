// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/volume/internal/blockmap"
)

// setUpOrUpdate sets up or updates the volume, and expands its file system if the PV has grown. It stores the result in res.
func (pc *pluginCall) setUpOrUpdate(ctx context.Context, plugin Plugin, res *result) {
	res.mount = pc.prior.mount
	c, err := pc.reloadClaim(ctx)
	if err != nil && pc.kind == plan.Remount && pc.prior.claimed != nil {
		pc.opts.Logger.Info("claim is unavailable: the volume stays unchanged", "pod", pc.pod, "volume", pc.volume.Name, "error", err)
		return // the volume stays unchanged
	}
	if err != nil && pc.useRecordedClaim(err) {
		res.claimed = recordedClaim(&pc.prior.recorded)
		if res.mount, res.err = pc.setUpVolume(ctx, plugin); res.err == nil {
			res.err = &StaleError{Err: err}
		}
		return
	}
	res.claimed, res.err = c, err
	if res.err == nil {
		res.err = pc.checkUsable()
	}
	if res.err != nil {
		res.err = pc.markFinal(res.err)
		return
	}
	if pc.kind == plan.SetUp || pc.shouldUpdate(plugin) {
		if res.mount, res.err = pc.setUpVolume(ctx, plugin); res.err != nil {
			return
		}
	}
	res.size, res.err = pc.expandOnNode(ctx, plugin)
}

// shouldUpdate reports whether the update of a volume must call SetUp: it shows objects, or requested periodic updates.
func (pc *pluginCall) shouldUpdate(plugin Plugin) bool {
	_, ok := plugin.(Refresher)
	return ok && pc.volume.PV == nil || pc.prior.mount.UpdatePeriodically
}

// setUpVolume calls SetUp of the plugin. For a block volume it also bind-mounts the device and creates the symbolic link at
// Volume.Dir.
func (pc *pluginCall) setUpVolume(ctx context.Context, plugin Plugin) (Mount, error) {
	if err := prepareParents(pc.volume); err != nil {
		return Mount{}, err
	}
	m, err := plugin.SetUp(ctx, pc.volume)
	if err != nil || !pc.volume.Block {
		return m, err
	}
	err = blockMapping(pc.volume).Map(ctx, m.HostPath)
	m.HostPath = pc.volume.Dir // the link
	return m, err
}

// reloadClaim returns the claim and PV of the volume, if any, and stores them in pc.volume. They must match the record of the
// volume.
func (pc *pluginCall) reloadClaim(ctx context.Context) (*claimed, error) {
	v := &pc.volume
	if v.Source == nil {
		return nil, fmt.Errorf("pod has no volume of plugin %s with this name", v.Plugin)
	}
	now, c, err := pc.resolver.resolveVolume(ctx, v.Pod, v.Source)
	if err == nil {
		err = pc.prior.recorded.CheckUnchanged(now)
	}
	if err != nil {
		return nil, err
	}
	v.fillClaim(c)
	return c, nil
}

// checkUsable returns an error if the PV excludes this node by affinity, or is ReadWriteOncePod and used by another pod.
func (pc *pluginCall) checkUsable() error {
	if pc.volume.PV == nil {
		return nil
	}
	if labels := pc.opts.NodeLabels; labels != nil {
		if err := claim.CheckAffinity(pc.volume.PV, labels()); err != nil {
			return err
		}
	}
	if pc.volume.UsedByOtherPod && claim.IsReadWriteOncePod(pc.volume.PV) {
		return claim.ErrInUse
	}
	return nil
}

// blockMapping returns the paths of a block volume: the bind mount of its device, and the symbolic link to it.
func blockMapping(vol Volume) blockmap.Mapping {
	return blockmap.Mapping{Bound: filepath.Join(vol.PluginDir, vol.Device.MapDir, vol.UID), Link: vol.Dir}
}

// prepareParents creates the parent directories of vol.Dir.
func prepareParents(vol Volume) error { return os.MkdirAll(filepath.Dir(vol.Dir), 0o750) }
