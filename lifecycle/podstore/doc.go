// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package podstore keeps the desired pods of a node in a file, so that an agent that starts without network and API server
// runs them. It neither fetches pods nor runs them, and it does not keep the objects that they refer to: config maps,
// secrets and tokens are not in the file.
//
// # Model
//
// A [Store] is between the sources of pods and the reconciler. Before any source has reported, [Store.Load] returns the
// last set of each. [Store.Update] takes the current set of a source and returns the set to run for it. [Store.Run] writes
// the file:
//
//	sources := []string{source.File, "api"}
//	reconciler, err := lifecycle.New(runtime, observer, lifecycle.Options{Sources: sources})
//	...
//	store := podstore.New("/var/lib/agent/pods", podstore.Options{Sources: sources})
//	sets, err := store.Load()
//	if err != nil {
//		log.Print(err) // go on: see "Errors"
//	}
//	for _, set := range sets {
//		err := reconciler.Set(set)
//		...
//	}
//	wg.Go(func() { _ = store.Run(ctx) })
//	dir.Run(ctx, func(u source.Update) {
//		err := reconciler.Set(store.Update(u.PodSet))
//		...
//	})
//
// A loaded set is always incomplete: it says which pods to run, and nothing about other pods of the runtime. The Reconciler
// does not touch those until every source in its options has reported completely. While a source reports incompletely,
// for example because one of its manifests cannot be read, the loaded pods that it has not named since the start stay
// desired. A pod that it has named is removed when the source drops it, and so is a pod whose name another pod takes.
//
// What belongs here: the file and its format. What does not: where pods come from (package source), and what is done to
// them (package lifecycle).
//
// # The file
//
// A line with the version of the format, the time and a SHA-256 sum of the rest, then a line of JSON for each pod:
//
//	nodeagent-pods version=1 saved=2026-05-04T03:02:01Z sha256=...
//	{"source":"file","pod":{"metadata":{"name":"web",...
//
// It is replaced as a whole, so a loss of power leaves the old one or the new one. It is written when the desired pods have
// changed: at once if the last write is an [Options].Interval ago, and at most once in an Interval; a write that failed is
// repeated after 1 s, doubling to 1 minute. While the disk accepts writes, a loss of power costs the changes of the last
// Interval at most: a pod that was deleted in it runs again until its source reports.
//
// Pods are stored as given, with their status and without metadata.managedFields. The environment of a pod may hold
// passwords, in plain text: the file has the mode 0600 and should be in a directory that only the agent can read. It is not
// meant to be edited: the sum would not match.
//
// A file is bounded, because reading it must not stop an agent that starts: 32 MiB, 400,000 values of JSON, lists of 1,000
// elements, strings of 2 MiB, and quantities with exponents between -100 and 100. A pod beyond that is not stored, which is
// reported to [Hooks].Error; the others are. If not all pods fit, those of the first of [Options].Sources are stored first, pods that have
// terminated last, and each namespace has an equal share.
//
// An agent reads the version that it writes, and treats any other as damaged. Future versions will read the version before
// them, so an upgrade keeps the pods. After a downgrade the file of the newer agent is renamed, and the node runs what its
// sources report. Unknown fields of a pod are dropped, as they are when a newer API server sends them.
//
// # Concurrency
//
// Load is called first and once. All other methods may be called at any time. Pods are shared with the caller and must not
// be written to. A file has one Store at a time.
//
// # Errors
//
// A missing file is no error: no source had desired pods. A damaged file (truncated, changed, of another version) is an
// [ErrCorrupt] that says why, and none of its pods is loaded. It is renamed to NAME.corrupt-TIME, of which the newest three
// are kept. Any other error, such as a lack of permission, leaves the file as it is until the next write replaces it.
//
// In all of these cases an agent should continue, as at a first start: running pods are not touched until every source has
// reported completely.
//
// # Differs from the kubelet
//
// The kubelet has no such file: without an API server it runs static pods only.
//
// Test kit: a store on a file below testing.T.TempDir; package critest has a runtime in memory to run the pods on.
package podstore
