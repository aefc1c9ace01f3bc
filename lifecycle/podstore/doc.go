// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstore keeps the pods that a node was last told to run in a file, so that an agent that starts without
// network and API server runs them. It neither asks for pods nor runs them, and it does not keep what they refer to:
// config maps, secrets and tokens are not in it.
//
// # Model
//
// A [Store] stands between the sources of pods and what runs them. Before any source has spoken, [Store.Load] gives
// what each of them last wanted. [Store.Update] takes what a source wants now and gives what is to be run for it.
// [Store.Run] writes the file. A [Set] has the fields of a lifecycle.PodSet and converts to one:
//
//	sources := []string{source.File, "api"}
//	reconciler := lifecycle.New(runtime, observer, lifecycle.Options{Sources: sources})
//	store := podstore.New("/var/lib/agent/pods", podstore.Options{Sources: sources})
//	sets, err := store.Load()
//	if err != nil {
//		log.Print(err) // go on: see "Errors"
//	}
//	for _, set := range sets {
//		err := reconciler.Set(lifecycle.PodSet(set))
//		...
//	}
//	wg.Go(func() { _ = store.Run(ctx) })
//	dir.Run(ctx, func(u source.Update) {
//		set := store.Update(podstore.Set{Source: source.File, Pods: u.Pods, Incomplete: !u.Complete})
//		err := reconciler.Set(lifecycle.PodSet(set))
//		...
//	})
//
// A loaded set is always incomplete: it says what to run, and nothing about other pods of the runtime. The Reconciler
// leaves these alone until every source that its options name has reported completely. While a source reports
// incompletely, because one of its manifests cannot be read, say, the loaded pods that it has not named since the
// start stay wanted. One that it has named is its own again, and is gone when the source drops it; one whose name
// another pod takes is gone as well.
//
// # The file
//
// A line with the version of the format, the time and a SHA-256 sum of all the rest, then a line of JSON for each pod:
//
//	nodeagent-pods version=1 saved=2026-05-04T03:02:01Z sha256=...
//	{"source":"file","pod":{"metadata":{"name":"web",...
//
// It is replaced as a whole, so a loss of power leaves the old one or the new one. It is written when what is wanted
// has changed, at once if the last write is an [Options].Interval ago, and at most once in an Interval however much
// changes; a write that failed is tried again after 1 s, doubling to 1 minute. While the disk takes writes, a loss
// of power costs the changes of the last Interval at most: a pod that was deleted in it runs again until its source
// speaks.
//
// Pods are stored as they are given, with their status and without metadata.managedFields. The environment of a pod
// may hold passwords, in plain text: the file has the mode 0600, and it should lie in a directory that is the agent's
// own. It is not made to be edited: the sum would not match.
//
// A file is bounded, as what an agent reads at its start must not stop it: 32 MiB, 400,000 values of JSON, lists of
// 1,000 elements, strings of 2 MiB, and quantities with exponents between -100 and 100. A pod that is beyond that is
// not stored, which [Hooks].Error is told; the others are.
//
// # Versions
//
// An agent reads the version it writes, and refuses others as it refuses damage. A version that follows gets the code
// to read the one before it, so an upgrade keeps the pods. After a downgrade the file of the newer agent is put
// aside, and the node runs what its sources say. Fields of a pod that an agent does not know are dropped, as they are
// when an API server that is newer than the agent sends them.
//
// # Errors
//
// No file is no error: no source wanted anything. A damaged file (cut off, changed, of another version) gives an
// [ErrCorrupt] that says why, and no pod of it. It is renamed to NAME.corrupt-TIME, of which the newest three are
// kept. Any other error, such as a lack of permission, leaves the file where it is until the next write replaces it.
//
// In all of these cases an agent does best to go on. All is as at a first start: what runs is left running until
// every source has reported completely.
//
// # Concurrency
//
// Load is called first and once. All other methods may be called at any time. Pods are shared with the caller and
// must not be written to. A file has one Store at a time.
//
// # Differs from the kubelet
//
// The kubelet has no such file: without an API server it runs static pods only.
package podstore
