// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// DeviceFinder is an optional interface of a [Plugin] that identifies the volumes of deleted pods, which another program, such as a kubelet, has set
// up. Source: ConstructVolumeSpec of the kubelet's plugins.
type DeviceFinder interface {
	// FindDevice returns the device of a volume, read from the files of the other program. The zero Device: pods do not share the volume. vol has the
	// UID of the pod, the directories, SpecName, Plugin and Block, and neither Pod nor PV. FindDevice returns an error if TearDown could not identify
	// the volume. It calls neither a driver nor the API server.
	FindDevice(vol Volume) (Device, error)
}

// identifyVolumes adds the volumes in the directories of a pod whose plugins can identify them, and returns the remaining directories. Each volume
// keeps its device staged. Only New calls it.
func (v *Volumes) identifyVolumes(state *podState, dirs []string) (unidentified []string) {
	for _, dir := range dirs {
		if r, ok := v.identifyVolume(state, dir); ok {
			v.addVolume(state, r).markUncertain()
		} else {
			unidentified = append(unidentified, dir)
		}
	}
	return unidentified
}

// identifyVolume returns the record of the volume in dir, a directory relative to that of the pod. ok is false if its plugin cannot identify it.
func (v *Volumes) identifyVolume(state *podState, dir string) (r record.Volume, ok bool) {
	plugin := strings.ReplaceAll(filepath.Base(filepath.Dir(dir)), "~", "/")
	finder, ok := v.opts.Plugins[plugin].(DeviceFinder)
	if !ok {
		return r, false
	}
	r = record.Volume{Plugin: plugin, Dir: dir}
	r.Block = dir == record.VolumeDir(plugin, r.SpecName(), true)
	r.Name = identifiedName(r.SpecName())
	if !record.IsPlainName(r.Name) || state.findVolume(r.Name) != nil {
		return r, false
	}
	d, err := finder.FindDevice(Volume{
		UID: state.uid, Name: r.Name, SpecName: r.SpecName(), Plugin: plugin, PodDir: state.dir, Dir: filepath.Join(state.dir, dir), PluginDir: v.opts.PluginDir,
		Block: r.Block, Warn: func(string, string) {},
	})
	if err == nil && d.Name != "" {
		r.Device = (*record.Device)(&d)
		err = r.Device.Validate()
	}
	if err != nil {
		v.opts.Logger.Warn("a volume of another program is not identified: it remains if its pod is deleted", "podUID", state.uid, "volume", dir, "error", err)
		return r, false
	}
	return r, r.Device != nil || !r.Block
}

// identifiedName returns a name for a volume whose name in the pod spec is unknown. No volume in a pod spec has such a name.
func identifiedName(spec string) string { return "~" + spec }

// forgetIdentified removes the identified volume in dir, which the pod spec describes better. The caller holds v.mu, and adds the volume again.
func (v *Volumes) forgetIdentified(state *podState, dir string) {
	i := slices.IndexFunc(state.volumes, func(e *entry) bool {
		return e.recorded.Dir == dir && e.plan.Name == identifiedName(e.recorded.SpecName())
	})
	if i < 0 {
		return
	}
	e := state.volumes[i]
	state.volumes = slices.Delete(state.volumes, i, i+1)
	v.plan.Volumes = slices.DeleteFunc(v.plan.Volumes, func(vol *plan.Volume) bool { return vol == &e.plan })
	if d := e.device; d != nil && !slices.ContainsFunc(state.volumes, func(other *entry) bool { return other.device == d }) {
		v.devices.removeUser(state, d)
	}
}

// takeIdentified adds the identified volumes to the recorded ones in memory, for the release of a pod that no source lists.
func (p *podState) takeIdentified() {
	for _, e := range p.volumes {
		if slices.Contains(p.adoption.found.Others, e.recorded.Dir) {
			p.recorded.Volumes = append(p.recorded.Volumes, e.recorded)
		}
	}
}
