// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package selinux decides which SELinux label a volume is mounted with, for nodes that enforce SELinux. It does not label files: a
// volume without a label of its own is relabeled by the runtime.
//
// # Model
//
// [Read] finds out from the files of the node whether SELinux is enabled, and which labels containers have by default. [Node.Mount]
// is the decision for one volume of one pod:
//
//	node, err := selinux.Read(os.DirFS("/"))
//	label, err := node.Mount(pod, "data")
//	options = append(options, selinux.MountOption(label)) // context="system_u:object_r:container_file_t:s0:c1,c2"
//
// Package volume decides so for each volume with a PV whose plugin can mount with a label: the kernel then gives the label to all files
// at once, and nobody walks them. Package csi can, for drivers that say so (seLinuxMount), and no plugin of package intree. A pod opts
// out by its seLinuxChangePolicy, Recursive.
//
// The label is that of the seLinuxOptions of the containers that mount the volume, or of the pod. They have to agree. A label is
// whole only with a level: where there is none the runtime picks one when it creates the sandbox, so the volume is mounted without
// a label, and relabeled.
//
// It belongs here which label. That a volume of several pods has one label at a time is for package volume, which mounts it for all of
// them: [Conflict] words that.
//
// # What is tested
//
// The decisions, the files and what drivers are asked are tested; no kernel that enforces SELinux was at hand. That the kernel takes the
// option, and that a container can read a volume which is mounted with it, is not tested.
//
// # Concurrency
//
// All of it is pure but Read.
//
// # Errors
//
// A [*MultipleLabelsError] says that containers do not agree.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/util/selinux.go at 1.37.1 with its gates SELinuxMount and SELinuxChangePolicy on. What a user
// must act on, with the rest in DIFFERENCES.md:
//
//   - seLinuxOptions without a level give no label. The kubelet makes up a level that nobody else has, so that the container, which
//     gets another one, cannot read its volume.
//
// Test kit: none is needed, as all of it is pure. Read takes any fs.FS.
package selinux
