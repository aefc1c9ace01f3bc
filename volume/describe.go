// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// describe returns a volume for the calls of a plugin. v.mu is held.
func (v *Volumes) describe(p *podState, e *entry) Volume {
	vol := Volume{
		Pod: p.spec, UID: p.uid, Name: e.plan.Name, Spec: e.recorded.Spec(), Plugin: e.recorded.Plugin,
		PodDir: p.dir, Dir: filepath.Join(p.dir, e.recorded.Dir), PluginDir: v.opts.PluginDir,
		Block: e.recorded.Block, SELinuxLabel: e.recorded.SELinuxLabel, Update: e.plan.Phase == plan.Ready, Recovered: e.plan.Recovered,
		Warn: func(string, string) {},
	}
	if d := e.device; d != nil {
		vol.Device, vol.StagingDir, vol.DevicePath = Device(d.spec), stagingDir(v.opts.PluginDir, &d.spec), d.path
		vol.Shared, vol.Recovered = v.devices.isShared(p.uid, d), e.plan.Recovered || d.plan.Recovered
	}
	if pod := p.spec; pod != nil {
		vol.Source = e.source(pod)
		vol.ReadOnly = e.readOnly(pod)
		vol.Warn = func(reason, message string) { v.events.record(pod, corev1.EventTypeWarning, reason, message) }
		vol.fill(e.claimed)
	}
	return vol
}

// describeDevice returns a device for the call that unstages it. The lock of its table is held.
func describeDevice(pluginDir string, d *device) Volume {
	vol := Volume{
		Spec: d.on, Plugin: d.kind, PluginDir: pluginDir, Block: d.block, Device: Device(d.spec), DevicePath: d.path, Recovered: d.plan.Recovered,
		Warn: func(string, string) {},
	}
	vol.StagingDir = stagingDir(pluginDir, &d.spec)
	return vol
}

// stagingDir returns where a device is staged, or "".
func stagingDir(pluginDir string, d *record.Device) string {
	if d.Dir == "" {
		return ""
	}
	return filepath.Join(pluginDir, d.Dir)
}
