// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// describeVolume returns the argument of a plugin call for a volume. v.mu is held.
func (v *Volumes) describeVolume(p *podState, e *entry) Volume {
	vol := Volume{
		Pod: p.spec, UID: p.uid, Name: e.plan.Name, SpecName: e.recorded.SpecName(), Plugin: e.recorded.Plugin,
		PodDir: p.dir, Dir: filepath.Join(p.dir, e.recorded.Dir), PluginDir: v.opts.PluginDir,
		Block: e.recorded.Block, SELinuxLabel: e.recorded.SELinuxLabel, Update: e.plan.Phase == plan.Ready, Recovered: e.plan.Recovered,
		Warn: func(string, string) {},
	}
	if d := e.device; d != nil {
		vol.Device, vol.StagingDir, vol.DevicePath = Device(d.spec), stagingDir(v.opts.PluginDir, &d.spec), d.path
		vol.UsedByOtherPod, vol.Recovered = v.devices.isShared(p.uid, d), e.plan.Recovered || d.plan.Recovered
	}
	if pod := p.spec; pod != nil {
		vol.Source = e.podSource(pod)
		vol.ReadOnly = e.isReadOnly(pod)
		vol.Warn = func(reason, message string) { v.events.recordEvent(pod, corev1.EventTypeWarning, reason, message) }
		vol.fillClaim(e.claimed)
	}
	return vol
}

// describeDevice returns the argument of the plugin call that unstages a device. Volumes.mu is held.
func describeDevice(pluginDir string, d *device) Volume {
	vol := Volume{
		SpecName: d.specName, Plugin: d.plugin, PluginDir: pluginDir, Block: d.block, Device: Device(d.spec), DevicePath: d.path, Recovered: d.plan.Recovered,
		Warn: func(string, string) {},
	}
	vol.StagingDir = stagingDir(pluginDir, &d.spec)
	return vol
}

// stagingDir returns the absolute path of the staging directory of a device; empty: none.
func stagingDir(pluginDir string, d *record.Device) string {
	if d.Dir == "" {
		return ""
	}
	return filepath.Join(pluginDir, d.Dir)
}
