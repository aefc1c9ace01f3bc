// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import "github.com/seed81659283/nodeagent/cgroups"

// Cgroups is the cgroup tree in which containers run. The driver of package cgroups/driver implements it, without its option
// Systemd.
type Cgroups interface {
	cgroups.CgroupWriter

	// Dirs returns the absolute directories of a cgroup, one per hierarchy. They need not exist.
	Dirs(p cgroups.Path) ([]string, error)
	// Parse returns the path of a cgroup from a name in the syntax of cri.SandboxConfig.CgroupParent. A cgroup outside the root
	// of the tree is an error.
	Parse(name string) (cgroups.Path, error)
}
