// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podhash computes the hash of a static pod from which the kubelet derives its UID. It reads no manifests and sets no
// UID: package source does.
//
// # Model
//
// The kubelet decodes a manifest, sets the defaults of the API server, and hashes a printed form (a dump) of its internal pod
// type with FNV-128a. The UID is this hash, continued with the origin of the manifest:
//
//	podapi.Default(pod)
//	podhash.Default(pod)
//	h := podhash.New(pod)
//	fmt.Fprintf(h, "host:%sfile:%s", node, path)
//	uid := hex.EncodeToString(h.Sum(nil))
//
// Since Kubernetes 1.37 the internal types have the fields of k8s.io/api/core/v1 in their order, so [Dump] prints corev1 types
// under the package name of the internal types. The conformance tests compare both sets of types field by field.
//
// The hash contains the names of all fields, set or not: another version of k8s.io/api changes all UIDs, as another version of
// the kubelet does.
//
// A time, such as metadata.creationTimestamp, is printed with the local time zone and its transitions. Such a pod has one UID
// only in processes with one time zone, one time zone database and one version of Go. The kubelet has the same dependency.
//
// # Concurrency
//
// All functions are pure, except that Default writes to its pod. They are safe for concurrent use with different pods.
//
// # Errors
//
// Dump returns the error of its writer. The other functions have none.
//
// Test kit: none; all functions are pure.
package podhash
