// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"io/fs"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/record"
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

// SELinuxMounter is a [Plugin] that can mount volumes with an SELinux label, which all of their files then have: by the mount option context="LABEL",
// with the quotes, where LABEL is Volume.SELinuxLabel. Such a volume is not relabeled.
type SELinuxMounter interface {
	// MountsWithLabel reports whether it can do so with a volume that has a PV. It may ask somebody about the driver of the volume, and
	// returns when ctx ends.
	MountsWithLabel(ctx context.Context, v Volume) (bool, error)
}

// label returns the SELinux label that a volume is mounted with; empty: with none. Containers of a pod that have different ones cannot
// share a PV, whatever its plugin.
func (rs resolver) label(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume, r record.Volume, c *claimed) (string, error) {
	if c == nil {
		return "", nil
	}
	label, err := rs.opts.SELinux.node().Mount(pod, vol.Name)
	if err == nil && len(label) > record.MaxLabel {
		err = fmt.Errorf("SELinux label has more than %d bytes", record.MaxLabel)
	}
	if err != nil || label == "" || r.Block {
		return "", err
	}
	mounter, ok := rs.opts.Plugins[r.Plugin].(SELinuxMounter)
	if !ok {
		return "", nil
	}
	if can, err := mounter.MountsWithLabel(ctx, rs.describe(pod, vol, r, c)); err != nil || !can {
		return "", unknown(err)
	}
	return label, nil
}
