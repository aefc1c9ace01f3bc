// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podset checks the pods that a source lists, and merges the pods of several sources. It neither reads pods (package source does) nor
// runs them (package lifecycle does).
//
// # Model
//
// [Accept] looks at the pods of a set one by one and leaves out those that are refused. A [Merge] is what all sources want
// together: a UID belongs to the source that wanted it first, for as long as that wants it, and all that is wanted is known
// once each source has reported all of its pods. A Merge does not change: [Merge.With] returns the next one.
//
//	merge := podset.NewMerge("file", "api")
//	accepted, refusals := podset.Accept(before, set, judge)
//	merge, contested := merge.With(accepted)
//
// What belongs here: rules about sources and sets, as who gets a UID that two sources want. What does not: whether a single
// pod is valid, which the caller of Accept judges, and what is done to pods.
//
// # Concurrency
//
// All functions may be called from any goroutine; they keep nothing. Pods are shared with the caller, and must not be written
// to as long as a Merge has them.
//
// # Errors
//
// Each pod that its source does not get is a [Refusal], with an error that names the pod. The others are not affected.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/config of Kubernetes 1.37. A source that has reported and could not read all of its pods counts as
// one that has not; in the kubelet the first report counts, whatever it has. Of two sources with one UID one has the
// pod; the kubelet takes each for an update of the other's.
//
// Test kit: none is needed, as all of it is pure.
package podset
