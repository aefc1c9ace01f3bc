// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import "github.com/seed81659283/nodeagent/cgroups"

// Cgroups is the cgroup tree in which containers run. The driver of package cgroups/driver implements it, without its option
// Systemd.
//
// A sandbox without a CgroupParent has the parent "nodeagent". Commands of ExecSync and exec sessions join the container's cgroup.
// The removal of the cgroup kills its remaining processes, even after the shim was killed. The shim itself is outside, but in
// cgroup v1 one of its threads counts as a task. The reason of a container is "OOMKilled" after an OOM kill. A runtime without
// Cgroups does not start a container that has a cgroup, and removes the container only if the cgroup no longer exists.
type Cgroups interface {
	cgroups.CgroupWriter

	// Dirs returns the absolute directories of a cgroup, one per hierarchy. They need not exist.
	Dirs(p cgroups.Path) ([]string, error)
	// Parse returns the path of a cgroup from a name in the syntax of cri.SandboxConfig.CgroupParent. A cgroup outside the root
	// of the tree is an error.
	Parse(name string) (cgroups.Path, error)
}
