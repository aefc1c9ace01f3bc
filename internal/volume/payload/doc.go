// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package payload computes the files of configMap, secret, downwardAPI and projected volumes: paths, contents and modes. It
// neither reads API objects nor writes files; package atomicwriter writes them.
//
//	// payload.References(vol) yields the config maps and secrets to read.
//	in := payload.Inputs{ConfigMaps: map[string]*corev1.ConfigMap{"app": app}}
//	files, err := payload.BuildFiles(pod, &pod.Spec.Volumes[0], in)
//	...
//	changed, err := atomicwriter.Write(dir, files, atomicwriter.Options{})
//
// An object that is missing in [Inputs] does not exist, which is an error unless the source is optional. If two sources of a
// projected volume have a file at the same path, the later source wins. The result depends only on the arguments.
//
// A file has the mode of its item, or the default mode of the volume, which is 0644. Tokens, trust bundles and certificates have
// mode 0600 in two cases: the pod has an fsGroup, or all its containers run as one user, who then owns the file.
//
// # Concurrency
//
// The functions may be called concurrently, as long as no goroutine changes the arguments. File contents may share memory with
// the objects.
//
// # Errors
//
// The error names object and key of each problem, with the text of the kubelet where it has one. It never quotes contents.
//
// # Differs from the kubelet
//
// The behaviour is that of pkg/volume/{configmap,secret,downwardapi,projected} at 1.37.1. DIFFERENCES.md lists all differences,
// with these:
//
//   - A volume has at most 64 MiB in 100,000 files, as in package atomicwriter.
//   - A volume without a default mode has 0644. The kubelet would refuse it.
//
// Test kit: none is needed, because all functions are pure.
package payload
