// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package payload decides which files a configMap, secret, downwardAPI or projected volume of a pod has: their paths, contents
// and modes. It reads nothing and writes nothing: see package atomicwriter, and the plugins in package intree.
//
// # Model
//
// [Wants] says which objects a volume is made of. Whoever has fetched them puts them into [Inputs], and [Of] returns the
// files:
//
//	in := payload.Inputs{ConfigMaps: map[string]*corev1.ConfigMap{"app": app}}
//	files, err := payload.Of(pod, &pod.Spec.Volumes[0], in)
//	...
//	changed, err := atomicwriter.Write(dir, files, atomicwriter.Options{})
//
// An object that is not in the Inputs does not exist. That is an error, unless the source is optional. The same arguments
// always give the same files. What a later source of a projected volume puts at a path replaces what an earlier one put there.
//
// A file has the mode of its item or the default mode of the volume, which is 0644. A token, a trust bundle and a certificate
// have 0600 where the pod has an fsGroup, or one user for all containers, who then owns them.
//
// It belongs here what a file of such a volume holds. Where it is written, and when, does not.
//
// # Concurrency
//
// The functions may be called at the same time, as long as nobody writes to the arguments meanwhile. The contents are those
// of the objects, not copies.
//
// # Errors
//
// An error names the object and the key, in the kubelet's words where it has some, and never quotes contents. All faults of a
// volume are one error.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/{configmap,secret,downwardapi,projected} at 1.37.1. What a user must act on, with the rest
// in DIFFERENCES.md:
//
//   - A volume has at most 64 MiB in 100,000 files, as package atomicwriter.
//   - A volume without a default mode has 0644, where the kubelet would refuse it.
//
// Test kit: none is needed, as all of it is pure.
package payload
