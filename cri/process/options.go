// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"log/slog"
)

// Options change how a [Runtime] works. The zero value is the production default.
type Options struct {
	// IgnoreUnsupported starts containers whose config asks for what a plain process cannot have, such as a mount at
	// another path, and logs a warning for each such field. By default they are refused.
	IgnoreUnsupported bool
	// Network gives sandboxes that are not on the host's network one of their own. Nil: all are on the host's. It
	// takes root. The runtime is opened without it also where sandboxes have a network, but they are not stopped then.
	Network Network
	// Mounts gives each container a mount namespace of its own, with the mounts of its config. It takes root and
	// Linux 5.12.
	Mounts bool
	// Cgroups confines each container to a cgroup below the CgroupParent of its sandbox. Nil: containers are in the
	// agent's cgroup, and resources have no effect. It takes root, and Linux 5.7 with cgroup v2.
	Cgroups Cgroups
	// Logger receives what no caller can be told, such as leftovers of a crash. Nil discards it.
	Logger *slog.Logger
}

// check reports an error where the agent's user cannot have what is asked for.
func (o Options) check(euid int) error {
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

func (o Options) logger() *slog.Logger {
	if o.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Logger
}
