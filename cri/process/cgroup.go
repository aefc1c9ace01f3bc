// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import "github.com/seed81659283/nodeagent/cgroups"

// Cgroups is the tree of cgroups that containers run in. The driver of package cgroups/driver is one, without
// its option Systemd.
type Cgroups interface {
	cgroups.CgroupWriter

	// Dirs returns the absolute directories of a cgroup, one for each hierarchy. They need not be there yet.
	Dirs(p cgroups.Path) ([]string, error)
	// Parse returns the path of a cgroup whose name is in the form of cri.SandboxConfig.CgroupParent. A cgroup that is
	// not below the root of the tree is an error.
	Parse(name string) (cgroups.Path, error)
}
