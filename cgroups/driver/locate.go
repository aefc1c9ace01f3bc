// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Dirs returns the directories that a cgroup is, one in each hierarchy, whether it is there or not. It is for whoever
// starts processes in it, which the driver does not.
func (d *Driver) Dirs(p cgroups.Path) ([]string, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	dir, err := d.names.dir(p)
	if err != nil {
		return nil, err
	}
	return d.tree.dirs(dir), nil
}

// Parse is the way back from [Driver.Name]. A cgroup that is not below the root of the driver is an error.
func (d *Driver) Parse(name string) (cgroups.Path, error) { return d.names.parse(name) }

// parse returns the path of what full has made.
func (n names) parse(name string) (cgroups.Path, error) {
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
