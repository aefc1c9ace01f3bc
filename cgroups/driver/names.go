// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"
)

// names turns paths into directories and back. A dir is relative to the root of the driver and empty for the root.
type names struct {
	root    cgroups.Path
	systemd bool
}

// rootDir is the root of the driver below the mount, without a slash at either end.
func (n names) rootDir() (string, error) {
	name, err := n.full("")
	return strings.Trim(name, "/"), err
}

// full is the name of a cgroup from the top of the mount, as a CRI runtime takes it.
func (n names) full(p cgroups.Path) (string, error) {
	whole := n.root.Join(p.Components()...)
	if n.systemd {
		return whole.Systemd()
	}
	return whole.Cgroupfs(), nil
}

func (n names) dir(p cgroups.Path) (string, error) {
	if !n.systemd {
		return string(p), nil
	}
	name, err := n.full(p)
	if err != nil {
		return "", err
	}
	root, err := n.full("")
	return strings.Trim(strings.TrimPrefix(name, root), "/"), err
}

// component is the last component of the path of a directory, if there is a path for it: below systemd a scope or a
// service has none.
func (n names) component(dir string) (string, bool) {
	if !n.systemd {
		return dir, true
	}
	p, err := cgroups.ParseSystemd("/" + dir)
	return p.Base(), err == nil && strings.HasSuffix(dir, ".slice")
}
