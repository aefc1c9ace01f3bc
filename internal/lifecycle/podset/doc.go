// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podset checks the pods that a source lists, and merges the pods of several sources. It reads no manifests (package
// source does) and runs no pods (package lifecycle does).
//
// # Model
//
// [Accept] checks the pods of one set and leaves out rejected pods. A [Merge] holds the desired pods of all sources. A UID
// belongs to the first source that lists it, as long as that source lists it. A Merge is complete once every source has reported
// all its pods. It is immutable: [Merge.With] returns the next one.
//
//	merge := podset.NewMerge("file", "api")
//	accepted, refusals := podset.Accept(before, set, judge)
//	merge, contested := merge.With(accepted)
//
// The caller of Accept decides whether a single pod is valid.
//
// # Concurrency
//
// All functions are pure and safe for concurrent use. Pods are shared with the caller, and must not be modified while a Merge has
// them.
//
// # Errors
//
// Each rejected pod is a [Refusal] with an error that names the pod. It does not affect other pods.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/config of Kubernetes 1.37. A source that could not read all its pods does not count as ready; in the
// kubelet its first report suffices. If two sources list one UID, one of them keeps the pod; in the kubelet each report replaces
// the pod of the other source.
//
// Test kit: none; all functions are pure.
package podset
