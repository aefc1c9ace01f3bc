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
	// FileLabel is the default label of the files of containers, such as "system_u:object_r:container_file_t:s0"; MCS categories
	// are added per volume. Empty: no volume is mounted with a label.
	FileLabel string
}

// ReadSELinux reads whether SELinux is enabled on a node, and the default label of container files. root is the node's root
// file system, such as os.DirFS("/"). ReadSELinux reads files below its directories /sys, /proc, /etc and /usr. A node without
// SELinux has the zero value.
func ReadSELinux(root fs.FS) (SELinux, error) {
	n, err := selinux.ReadNode(root)
	return SELinux{Enabled: n.Enabled, FileLabel: n.DefaultFileLabel}, err
}

// toNode converts s to the type of package selinux.
func (s SELinux) toNode() selinux.Node {
	return selinux.Node{Enabled: s.Enabled, DefaultFileLabel: s.FileLabel}
}

// SELinuxMounter is an optional interface of a [Plugin] that can mount a volume with one SELinux label for all files. SetUp or
// Stage then passes the mount option context="LABEL", in quotes, where LABEL is Volume.SELinuxLabel. The container runtime does
// not relabel this volume.
type SELinuxMounter interface {
	// MountsWithLabel reports whether the plugin can mount vol, which has a PV, with a label. It may query the CSI driver or the
	// API server, and must return when ctx ends.
	MountsWithLabel(ctx context.Context, vol Volume) (bool, error)
}

// selinuxLabel returns the SELinux label for mounting the volume, or "" for none. It returns an error if containers that share
// the PV have different labels.
func (rs resolver) selinuxLabel(ctx context.Context, pod *corev1.Pod, vol *corev1.Volume, planned record.Volume, bound *claimed) (string, error) {
	if bound == nil {
		return "", nil
	}
	label, err := rs.opts.SELinux.toNode().MountLabel(pod, vol.Name)
	if err == nil && len(label) > record.MaxLabel {
		err = fmt.Errorf("SELinux label has more than %d bytes", record.MaxLabel)
	}
	if err != nil || label == "" || planned.Block {
		return "", err
	}
	mounter, ok := rs.opts.Plugins[planned.Plugin].(SELinuxMounter)
	if !ok {
		return "", nil
	}
	if can, err := mounter.MountsWithLabel(ctx, rs.describeUnrecorded(pod, vol, planned, bound)); err != nil || !can {
		return "", markUnknown(err)
	}
	return label, nil
}
