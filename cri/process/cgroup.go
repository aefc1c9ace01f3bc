// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import "github.com/seed81659283/nodeagent/cgroups"

// Cgroups is the cgroup tree in which containers run. The driver of package cgroups/driver implements it, if its option Systemd
// is not set.
//
// A sandbox without a CgroupParent has the parent "nodeagent". The container's process and all commands in the container join the
// container's cgroup. The shim stays outside, but in cgroup v1 one of its threads counts as a task.
//
// Containers have the cpusets of their resources, which UpdateContainer changes while they run: their processes move at once.
//
// After an OOM kill in the cgroup, the reason of the container is "OOMKilled". The removal of the container kills the remaining
// processes in its cgroup.
//
// A runtime without Cgroups does not start a container that has a cgroup, and removes the container only if the cgroup no longer
// exists.
type Cgroups interface {
	cgroups.CgroupWriter

	// Dirs returns the absolute directories of a cgroup, one per hierarchy. They need not exist.
	Dirs(p cgroups.Path) ([]string, error)
	// Parse returns the path of a cgroup from a name in the syntax of cri.SandboxConfig.CgroupParent. A cgroup outside the root
	// of the tree is an error.
	Parse(name string) (cgroups.Path, error)
}
