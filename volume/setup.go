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

// setUp makes a volume, or brings it up to date, and lets it grow.
func (pc *pluginCall) setUp(ctx context.Context, plugin Plugin, r *result) {
	r.mount = pc.before.mount
	c, err := pc.reloadClaim(ctx)
	if err != nil && pc.kind == plan.Remount && pc.before.claimed != nil {
		pc.opts.Logger.Info("claim is not known", "pod", pc.pod, "volume", pc.volume.Name, "error", err)
		return // it stays as it is
	}
	if err != nil && pc.useRecordedClaim(err) {
		r.claimed = recordedClaim(&pc.before.recorded)
		if r.mount, r.err = pc.setUpVolume(ctx, plugin); r.err == nil {
			r.err = &StaleError{Err: err}
		}
		return
	}
	r.claimed, r.err = c, err
	if r.err == nil {
		r.err = pc.checkUsable()
	}
	if r.err != nil {
		r.err = pc.nothingMade(r.err)
		return
	}
	if pc.kind == plan.SetUp || pc.updates(plugin) {
		if r.mount, r.err = pc.setUpVolume(ctx, plugin); r.err != nil {
			return
		}
	}
	r.size, r.err = pc.expandOnNode(ctx, plugin)
}

// updates reports whether the plugin brings the volume up to date itself.
func (pc *pluginCall) updates(plugin Plugin) bool {
	_, ok := plugin.(Refresher)
	return ok && pc.volume.PV == nil || pc.before.mount.Refresh
}

// setUpVolume has the plugin set up the volume, and binds a block device for the pod.
func (pc *pluginCall) setUpVolume(ctx context.Context, plugin Plugin) (Mount, error) {
	if err := prepareParents(pc.volume); err != nil {
		return Mount{}, err
	}
	m, err := plugin.SetUp(ctx, pc.volume)
	if err != nil || !pc.volume.Block {
		return m, err
	}
	err = mapping(pc.volume).Map(ctx, m.HostPath)
	m.HostPath = pc.volume.Dir // the link
	return m, err
}

// reloadClaim fetches the claim of the volume again, and fails if it names another volume than the record.
func (pc *pluginCall) reloadClaim(ctx context.Context) (*claimed, error) {
	v := &pc.volume
	if v.Source == nil {
		return nil, fmt.Errorf("the pod has no such volume of plugin %s", v.Plugin)
	}
	now, c, err := pc.resolver.resolve(ctx, v.Pod, v.Source)
	if err == nil {
		err = pc.before.recorded.CheckSame(now)
	}
	if err != nil {
		return nil, err
	}
	v.fill(c)
	return c, nil
}

// checkUsable returns why the pod cannot have the volume on this node now.
func (pc *pluginCall) checkUsable() error {
	if pc.volume.PV == nil {
		return nil
	}
	if labels := pc.opts.Labels; labels != nil {
		if err := claim.CheckAffinity(pc.volume.PV, labels()); err != nil {
			return err
		}
	}
	if pc.volume.Shared && claim.OncePerPod(pc.volume.PV) {
		return claim.ErrInUse
	}
	return nil
}

// mapping returns where a block device is made known by its pod.
func mapping(v Volume) blockmap.Mapping {
	return blockmap.Mapping{Bound: filepath.Join(v.PluginDir, v.Device.MapDir, v.UID), Link: v.Dir}
}

// prepareParents makes the directories that lead to a volume.
func prepareParents(vol Volume) error { return os.MkdirAll(filepath.Dir(vol.Dir), 0o750) }
