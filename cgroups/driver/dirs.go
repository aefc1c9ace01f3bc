// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Dirs returns the absolute directories of the cgroup p, one per hierarchy. They may not exist. Callers use them to start
// processes in the cgroup.
func (d *Driver) Dirs(p cgroups.Path) ([]string, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	dir, err := d.names.relativeDir(p)
	if err != nil {
		return nil, err
	}
	return d.tree.absoluteDirs(dir), nil
}

// Parse returns the path of a cgroup, given its name in the format of [Driver.Name]. It returns an error if the cgroup is
// not below the root of the driver.
func (d *Driver) Parse(name string) (cgroups.Path, error) { return d.names.parseName(name) }

// parseName returns the path of a cgroup below the driver's root. name has the format of cgroup_parent in the CRI.
func (n names) parseName(name string) (cgroups.Path, error) {
	parse := cgroups.ParseCgroupfs
	if n.systemd {
		parse = cgroups.ParseSystemd
	}
	whole, err := parse(name)
	if err != nil || n.root == "" || whole == n.root {
		return cgroups.Path(strings.TrimPrefix(string(whole), string(n.root))), err
	}
	rest, ok := strings.CutPrefix(string(whole), string(n.root)+"/")
	if !ok {
		return "", fmt.Errorf("cgroup %q is not below %s", name, n.root.Cgroupfs())
	}
	return cgroups.Path(rest), nil
}
