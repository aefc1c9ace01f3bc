// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/podvolume"
	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// resolver determines the plugin, directory, claim and device of a volume. It has no state of its own, and needs no lock.
type resolver struct {
	opts *Options
}

// resolveVolume returns the record of a volume, with its plugin, directory and device, and its claim or nil. It returns an error
// if the pod cannot use it.
func (rs resolver) resolveVolume(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume) (record.Volume, *claimed, error) {
	r := record.Volume{Name: vol.Name}
	c, err := rs.resolveClaim(ctx, pod, vol)
	if err != nil {
		return r, nil, err
	}
	spec, source := vol.Name, podvolume.SourceOf(vol)
	if c != nil {
		spec, source = c.pv.Name, podvolume.PVSourceOf(c.pv)
		r.Block = claim.IsBlock(c.pv)
	}
	r.Plugin = pluginNames()[source]
	plugin, ok := rs.opts.Plugins[r.Plugin]
	if !ok || !record.IsPlainName(vol.Name) || !record.IsPlainName(spec) {
		return r, nil, missingPluginError(source)
	}
	r.Dir = record.VolumeDir(r.Plugin, spec, r.Block)
	if r.SELinuxLabel, err = rs.selinuxLabel(ctx, pod, vol, r, c); err != nil {
		return r, nil, err
	}
	if c != nil {
		if err := rs.checkPV(c.pv); err != nil {
			return r, nil, err
		}
	}
	if stager, ok := plugin.(Stager); ok {
		d, err := stager.Device(ctx, rs.describeUnrecorded(pod, vol, r, c))
		if err != nil {
			return r, nil, markUnknown(err)
		}
		if d.Name != "" {
			shared := record.Device(d)
			if err := shared.Validate(); err != nil {
				return r, nil, err
			}
			r.Device = &shared
		}
	}
	if r.Block && (r.Device == nil || r.Device.MapDir == "") {
		return r, nil, noBlockError(source)
	}
	return r, c, nil
}

// checkPV returns an error if no plugin can set up a PV: its type has no plugin, or a plugin without block devices or mount options. It calls no plugin.
func (rs resolver) checkPV(pv *corev1.PersistentVolume) error {
	source := podvolume.PVSourceOf(pv)
	name := pluginNames()[source]
	plugin, ok := rs.opts.Plugins[name]
	if !ok {
		return missingPluginError(source)
	}
	if _, ok := plugin.(Stager); ok {
		return nil
	}
	if claim.IsBlock(pv) {
		return noBlockError(source)
	}
	if len(claim.MountOptions(pv)) > 0 && !mountsWithOptions(name) {
		return errors.New("mount options are not supported for this volume type")
	}
	return nil
}

func missingPluginError(source string) error {
	return fmt.Errorf("there is no plugin for %s volumes", source)
}

func noBlockError(source string) error {
	return fmt.Errorf("%s volumes cannot be block devices", source)
}

// mountsWithOptions reports whether a plugin that does not stage devices applies the mount options of a PV.
func mountsWithOptions(plugin string) bool { return plugin == NFS }

// describeUnrecorded returns the [Volume] that is passed to the plugin before the record is complete. Without a claim, bound is
// nil.
func (rs resolver) describeUnrecorded(pod *corev1.Pod, vol *corev1.Volume, planned record.Volume, bound *claimed) Volume {
	d := Volume{
		Pod: pod, Source: vol, UID: string(pod.UID), Name: planned.Name, SpecName: planned.SpecName(), Plugin: planned.Plugin, PluginDir: rs.opts.PluginDir,
		Block: planned.Block, SELinuxLabel: planned.SELinuxLabel, ReadOnly: podvolume.ReadOnly(vol), Warn: func(string, string) {},
	}
	d.fillClaim(bound)
	return d
}
