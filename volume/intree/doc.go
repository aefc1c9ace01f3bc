// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package intree has the plugins for volumes that need no driver, which the kubelet calls in-tree: emptyDir, hostPath, configMap,
// secret, downwardAPI, projected, local and NFS. It decides neither when a volume is set up nor for whom: see package
// volume.
//
// # Model
//
// [Plugins] returns them by their names, for volume.Options:
//
//	plugins := intree.Plugins(intree.Options{Objects: objects.NewDir("/etc/agent/objects")})
//	volumes, err := volume.New(volume.Options{Root: root, Plugins: plugins})
//
// An emptyDir is a directory, a tmpfs or a hugetlbfs. The others but hostPath are directories that package atomicwriter
// replaces as a whole, those of config maps on the disk, the rest on a tmpfs. Their files are from package payload. Where other
// volumes are mounted below one of them, it has directories for them. hostPath leaves nothing on disk.
//
// The files get the fsGroup of the pod from package fsgroup.
//
// An agent that is started while objects and tokens cannot be had uses the files that an earlier one has written, whole and with no token
// or certificate that has expired: containers that have ended are started again. It asks for 3 s, and then tries on meanwhile.
//
// How much a volume takes is what its file system says where it has one of its own, what its quota counts, or else what a walk finds,
// which enters nothing that is mounted and counts a file of several names once. hostPath volumes are not measured, as in the kubelet.
//
// Teardown unmounts and then removes, and never removes what is mounted in a volume: what a container has mounted there for the
// host to see is unmounted.
//
// A local volume is a directory of the node, which is bound for each pod, or a block device: containers get it as it is, or its file system
// is made where there is none, repaired, mounted once and bound for each pod. NFS is mounted by mount(8), which is ended with all that
// it has started when nobody waits for it any more.
//
// What belongs here: plugins that need no driver. Which files a volume has does not.
//
// # Concurrency
//
// The plugins may be used from several goroutines, for one volume one at a time.
//
// # Errors
//
// An error says what was done and wraps the cause. None has the contents of a secret in it.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/{emptydir,hostpath,configmap,secret,downwardapi,projected} at 1.37.1. What a user must act
// on, with the rest in DIFFERENCES.md:
//
//   - Projected and downwardAPI volumes need no API server, unless a source of them does.
//   - An update that fails leaves the files as they were. The kubelet removes the volume.
//   - The sizeLimit of an emptyDir on the disk is a hard limit where its file system has project quotas and hostUsers is false: who writes more gets an error,
//     and the pod is not evicted for it.
//   - A pod certificate, a trust bundle or a token without a source for it in the Options is refused when the pod is accepted.
//
// Test kit: package volumetest has the suite that every plugin passes.
package intree
