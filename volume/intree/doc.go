// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package intree has plugins for the volume types that need no CSI driver: emptyDir, hostPath, configMap, secret, downwardAPI,
// projected, local and NFS. It does not decide when a volume is set up: package volume does.
//
//	plugins := intree.Plugins(intree.Options{Objects: objects.NewDir("/etc/agent/objects")})
//	volumes, err := volume.New(volume.Options{Root: root, Plugins: plugins})
//
// # Volume types
//
// An emptyDir is a directory, a tmpfs or a hugetlbfs. hostPath creates nothing, except a missing path if its type asks for that.
//
// configMap, secret, downwardAPI and projected volumes are directories whose files package atomicwriter replaces atomically: on
// disk for config maps, otherwise on a tmpfs. Package payload computes their files. They contain empty directories where
// containers mount other volumes below them. If objects or tokens are unavailable after a restart of the agent, the existing
// files are used, unless a token or certificate in them has expired. A set-up then waits only 3 s for the objects, and is
// retried.
//
// A local volume is a directory of the node, which is bind-mounted for each pod, or a block device. The device is used as it is,
// or its file system is created if missing, checked, mounted once and bind-mounted for each pod. NFS volumes are mounted by
// mount(8). When the context ends, mount(8) and its child processes are killed.
//
// Files get the fsGroup of the pod from package fsgroup. Usage comes from statfs if the volume is a file system, from its project
// quota, or from a walk. The walk skips mounts and counts hard links once. As in the kubelet, hostPath volumes are not measured.
//
// A teardown unmounts the volume, and file systems that containers have mounted inside, before it removes the directory. It never
// deletes files of a mounted file system.
//
// # Concurrency
//
// The plugins may be used from several goroutines, for one volume one at a time.
//
// # Errors
//
// An error names the operation and wraps the cause. It never contains a secret.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/{emptydir,hostpath,configmap,secret,downwardapi,projected} at 1.37.1. DIFFERENCES.md lists
// all differences, with these:
//
//   - Projected and downwardAPI volumes need no API server, unless one of their sources does.
//   - A failed update leaves the files unchanged. The kubelet removes the volume.
//   - The sizeLimit of an emptyDir on disk is a hard limit if the file system has project quotas and hostUsers is false: writes beyond it fail, and the pod is not evicted.
//   - A pod with a source that Options does not provide, such as tokens, is refused when it is admitted.
//
// Test kit: package volumetest has the suite that every plugin passes.
package intree
