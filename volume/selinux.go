// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"io/fs"

	"github.com/seed81659283/nodeagent/internal/volume/selinux"
)

// SELinux is the state of SELinux on a node. The zero value is a node without SELinux.
type SELinux struct {
	Enabled bool
	// FileLabel is the default label of the files of containers, without a level of their own, such as
	// "system_u:object_r:container_file_t:s0". Empty: no volume is mounted with a label.
	FileLabel string
}

// ReadSELinux reads the state of SELinux from the files of a node, such as os.DirFS("/"): from /sys, /proc, /etc and /usr. It returns the zero
// value for a node without SELinux.
func ReadSELinux(root fs.FS) (SELinux, error) {
	n, err := selinux.Read(root)
	return SELinux{Enabled: n.Enabled, FileLabel: n.File}, err
}

// node returns the state for the decisions of package selinux.
func (s SELinux) node() selinux.Node { return selinux.Node{Enabled: s.Enabled, File: s.FileLabel} }
