// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"strings"

	"github.com/seed81659283/nodeagent/cgroups"
)

// names converts paths to directories and back. A directory is relative to the root of the driver and empty for the root.
type names struct {
	root    cgroups.Path
	systemd bool
}

// rootDir returns the path of the driver's root relative to the mount point, without a leading and a trailing slash.
func (n names) rootDir() (string, error) {
	name, err := n.cgroupName("")
	return strings.Trim(name, "/"), err
}

// cgroupName returns the name of the cgroup p relative to the mount point. The name has the format of cgroup_parent in the
// CRI.
func (n names) cgroupName(p cgroups.Path) (string, error) {
	whole := n.root.Join(p.Components()...)
	if n.systemd {
		return whole.Systemd()
	}
	return whole.Cgroupfs(), nil
}

func (n names) relativeDir(p cgroups.Path) (string, error) {
	if !n.systemd {
		return string(p), nil
	}
	name, err := n.cgroupName(p)
	if err != nil {
		return "", err
	}
	root, err := n.cgroupName("")
	return strings.Trim(strings.TrimPrefix(name, root), "/"), err
}

// pathComponent returns the component of a [cgroups.Path] for the name of a directory. With systemd, scopes and services
// have no component, and ok is false.
func (n names) pathComponent(dir string) (component string, ok bool) {
	if !n.systemd {
		return dir, true
	}
	p, err := cgroups.ParseSystemd("/" + dir)
	return p.Base(), err == nil && strings.HasSuffix(dir, ".slice")
}
