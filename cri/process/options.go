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
	// Network sets up a network for each sandbox that is not on the host's. If nil, all sandboxes use the host's network. It
	// requires root. A runtime without Network can list sandboxes that have a network, but cannot stop them.
	//
	// All processes of such a sandbox are in its network namespace, with the pod's host name and network sysctls. After a reboot
	// the sandbox is not ready. /sys still shows the host's interfaces.
	Network Network
	// Mounts gives each container a mount namespace with the mounts and devices of its config and the pod's /etc/resolv.conf. It
	// requires root and Linux 5.12.
	//
	// The namespace follows the mounts of the host; the host sees only mounts with propagation Bidirectional. A missing host path
	// is created as a directory, but a missing device is an error. A missing mount point inside a volume is created there.
	// Elsewhere a tmpfs with the same entries replaces the deepest existing directory, for this container only: later changes of
	// that directory itself are not shared with the host.
	//
	// Links of the host are followed to a mount point, links in a volume are refused. Also refused are a mount over "/", in a
	// Bidirectional mount, or in a read-only volume without the mount point, and a replaced directory of over 1,000 entries.
	Mounts bool
	// Cgroups runs each container in a cgroup below the CgroupParent of its sandbox. If nil, containers run in the agent's
	// cgroup, and resources have no effect. It requires root and, with cgroup v2, Linux 5.7.
	//
	// Without a CgroupParent the parent is "nodeagent". Commands join the cgroup, and its removal kills remaining processes, even
	// after the shim was killed. The shim is outside, except that one of its threads counts as a task in cgroup v1. After an OOM
	// kill the reason is "OOMKilled". A runtime without Cgroups does not start a container that has a cgroup, and removes it only
	// if the cgroup no longer exists.
	Cgroups Cgroups
	// Logger receives problems that no call returns, such as remains of a crash. Nil discards them.
	Logger *slog.Logger
}

// checkUser returns an error if an option requires root and euid is not 0.
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

// logger returns Logger, or a logger that discards everything.
func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}
