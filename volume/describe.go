// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"path/filepath"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
	"github.com/seed81659283/nodeagent/internal/volume/record"
)

// describeVolume returns the [Volume] that is passed to the plugin for a volume of a pod. The caller holds v.mu.
func (v *Volumes) describeVolume(state *podState, item *entry) Volume {
	vol := Volume{
		Pod: state.spec, UID: state.uid, Name: item.plan.Name, SpecName: item.recorded.SpecName(), Plugin: item.recorded.Plugin,
		PodDir: state.dir, Dir: filepath.Join(state.dir, item.recorded.Dir), PluginDir: v.opts.PluginDir,
		Block: item.recorded.Block, SELinuxLabel: item.recorded.SELinuxLabel, Update: item.plan.Phase == plan.Ready, Recovered: item.plan.Recovered,
		Warn: func(string, string) {},
	}
	if d := item.device; d != nil {
		vol.Device, vol.StagingDir, vol.DevicePath = Device(d.spec), stagingDir(v.opts.PluginDir, &d.spec), d.path
		vol.UsedByOtherPod, vol.Recovered = v.devices.isShared(state.uid, d), item.plan.Recovered || d.plan.Recovered
	}
	if pod := state.spec; pod != nil {
		vol.Source = item.podSource(pod)
		vol.ReadOnly = item.isReadOnly(pod)
		vol.Warn = func(reason, message string) { v.events.recordEvent(pod, corev1.EventTypeWarning, reason, message) }
		vol.fillClaim(item.claimed)
	}
	return vol
}

// describeDevice returns the [Volume] that is passed to Unstage of the plugin for a device. The caller holds Volumes.mu.
func describeDevice(pluginDir string, dev *device) Volume {
	vol := Volume{
		SpecName: dev.specName, Plugin: dev.plugin, PluginDir: pluginDir, Block: dev.block, Device: Device(dev.spec), DevicePath: dev.path, Recovered: dev.plan.Recovered,
		Warn: func(string, string) {},
	}
	vol.StagingDir = stagingDir(pluginDir, &dev.spec)
	return vol
}

// stagingDir returns the absolute path of the staging directory of a device. It returns "" if the device has no staging
// directory.
func stagingDir(pluginDir string, dev *record.Device) string {
	if dev.Dir == "" {
		return ""
	}
	return filepath.Join(pluginDir, dev.Dir)
}
