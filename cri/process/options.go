// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"log/slog"
)

// Options configures a [Runtime]. The zero value is ready for production.
type Options struct {
	// IgnoreUnsupported starts containers even if their config needs features that a plain process cannot have, for example a
	// mount at another path. It logs a warning per unsupported field. By default configs with unsupported fields are refused.
	IgnoreUnsupported bool
	// Network sets up a network for each sandbox that is not on the host's, and requires root. If nil, all sandboxes use the
	// host's network.
	Network Network
	// Mounts gives each container a mount namespace with the mounts and devices of its config and the pod's /etc/resolv.conf. It
	// requires root and Linux 5.12. Section "Mounts" of the package comment has the rules. False: containers see the host's files.
	Mounts bool
	// Cgroups runs each container in a cgroup below the CgroupParent of its sandbox, and requires root; cgroup v2 also requires Linux 5.7.
	// If nil, containers run in the agent's cgroup, resources have no effect and no update, and cpusets are refused.
	Cgroups Cgroups
	// Logger receives problems that no call returns, such as remains of a crash. Nil discards them.
	Logger *slog.Logger
}

// checkUser returns an error if the options require root and the agent is not root. euid is the user ID of the agent.
func (o Options) checkUser(euid int) error {
	for _, need := range []struct {
		field string
		set   bool
	}{{"Network", o.Network != nil}, {"Mounts", o.Mounts}, {"Cgroups", o.Cgroups != nil}} {
		if need.set && euid != 0 {
			return fmt.Errorf("option %s takes root, not user %d: leave it out or run as root", need.field, euid)
		}
	}
	return nil
}

// logger returns o.Logger or, if that is nil, a logger that discards everything.
func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}
