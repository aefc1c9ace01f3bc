// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"errors"
	"log/slog"

	"github.com/seed81659283/nodeagent/internal/hostsettings"
)

// HostSettings returns the checks and changes of the machine and of this process. ownProcess is true if the process is that of the agent alone: only
// then are kernel parameters, the OOM score adjustment, the limit of open files and the cgroup changed, the last three only with a container runtime, because
// plain processes would inherit them. Call SetDefaults and Validate first.
func (d *Documents) HostSettings(ownProcess bool) hostsettings.Settings {
	k := &d.Kubelet
	s := hostsettings.Settings{
		FailSwapOn: *k.FailSwapOn, FailCgroupV1: *k.FailCgroupV1,
		CheckParameters: k.ProtectKernelDefaults, ChangeParameters: d.Node.HostSettings && ownProcess,
	}
	if ownProcess && k.ContainerRuntimeEndpoint != "" {
		s.OOMScoreAdj, s.MaxOpenFiles, s.Cgroup = k.OOMScoreAdj, uint64(k.MaxOpenFiles), k.KubeletCgroups
	}
	return s
}

// PrepareHost applies the settings of HostSettings to this machine and process. Each error names the file and the field that refuse the machine. A nil
// logger discards. Call SetDefaults and Validate first.
func (d *Documents) PrepareHost(ownProcess bool, logger *slog.Logger) error {
	return d.applySettings(d.HostSettings(ownProcess), "/proc", logger)
}

// CheckHost returns the errors of PrepareHost about a machine, which it does not change. proc is the directory /proc; empty: that of this machine. Call
// SetDefaults first.
func (d *Documents) CheckHost(proc string) error {
	return d.applySettings(d.HostSettings(false), cmp.Or(proc, "/proc"), nil)
}

// applySettings applies s and adds the file of the field to each error.
func (d *Documents) applySettings(s hostsettings.Settings, proc string, logger *slog.Logger) error {
	if err := s.Apply(proc, logger); err != nil {
		return errors.Join(d.nameFiles([]error{err})...)
	}
	return nil
}
