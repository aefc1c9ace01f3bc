// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package selinux decides with which SELinux label a volume is mounted on a node with SELinux. It does not relabel files: the
// container runtime does that for volumes that are mounted without a label.
//
//	node, err := selinux.ReadNode(os.DirFS("/"))
//	label, err := node.MountLabel(pod, "data")
//	options = append(options, selinux.MountOption(label)) // context="system_u:object_r:container_file_t:s0:c1,c2"
//
// With the mount option, the kernel applies the label to all files at once; relabeling would visit each file. Package volume uses
// this for volumes with a PV. Of the plugins, only package csi supports it, for drivers with seLinuxMount in their CSIDriver
// object. A pod opts out with seLinuxChangePolicy Recursive.
//
// The label comes from the seLinuxOptions of the containers that mount the volume, or from those of the pod; all must agree.
// Without a level, the runtime chooses one when it creates the sandbox. The label is then incomplete, and the volume is mounted
// without a label.
//
// A volume of several pods has one label at a time, which package volume enforces with [CheckConflict].
//
// # What is tested
//
// Decisions, parsing and the requests to CSI drivers are tested. Mounts with a label are not tested, because no kernel with
// SELinux was available.
//
// # Concurrency
//
// All functions except ReadNode are pure.
//
// # Errors
//
// A [*MultipleLabelsError] means that the containers of a pod do not agree.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/util/selinux.go at 1.37.1 with the feature gates SELinuxMount and SELinuxChangePolicy on.
// DIFFERENCES.md lists all differences, with this one:
//
//   - seLinuxOptions without a level give no label. The kubelet generates a level of its own, so that a container with another level cannot read the volume.
//
// Test kit: none is needed, because all functions are pure. ReadNode accepts any fs.FS.
package selinux
