// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package source reads pods from manifests in a directory or behind a URL, and hands over the full set each time it
// changes. It runs nothing: what becomes of the pods is for package lifecycle to decide.
//
// # Model
//
// A manifest is YAML or JSON and holds pods, PodLists or Lists of pods, any number of them in documents parted by
// "---". [Parse] decodes it strictly, turns its pods into static pods of this node (UID, name, annotations), fills in
// defaults and validates them. A [Dir] does so for the files of a directory, an [HTTP] for what a server answers.
//
//	dir := source.NewDir("/etc/manifests", source.DirOptions{NodeName: "edge-1"})
//	err := dir.Run(ctx, func(u source.Update) {
//		for _, e := range u.Errs {
//			log.Print(e) // /etc/manifests/web.yaml:12: spec.containers[0].imagee: unknown field
//		}
//		err := reconciler.Set(lifecycle.PodSet{Source: source.File, Pods: u.Pods, Incomplete: !u.Complete})
//		...
//	})
//
// A program that builds its pods itself calls [Static] for each of them: it does for a pod what Parse does for those of
// a manifest.
//
// What is wrong with one pod or one file never touches another. While a file has an error, the pods it held before
// stay in the set, and what it states without error is followed. So does a directory that vanishes or a server that
// fails: a pod leaves the set only when a manifest that can be read no longer has it. To take all pods away, empty the
// directory or serve an empty PodList.
//
// Nothing is remembered across a restart of the agent, so a file that is bad when the agent starts holds pods that
// nobody knows, and some may be running. [Update].Complete is false then: whoever consumes the set stops no pod that
// runs on the node and that no source has ever named, until every source is complete.
//
// A change counts when the file has held still for DirOptions.Settle. This keeps half-written files, and files that
// an editor moves away for a moment, from touching their pods. A writer that pauses for longer in the middle of a
// file can still be seen halfway: to be safe against it, write elsewhere and rename.
//
// # Concurrency
//
// Run owns all state. It calls its sink from its own goroutine and waits for it; pods in an update are shared with
// later updates and must not be changed. A pod that did not change keeps its pointer, so consumers can compare
// pointers.
//
// # Source and differences
//
// The behaviour follows kubelet 1.37.1 (pkg/kubelet/config). Differs from the kubelet:
//
//   - Bad manifests, a missing path and an empty HTTP answer keep the last good pods; the kubelet removes them.
//   - Unknown and duplicate fields are errors.
//   - All documents of a file count and may be lists; the kubelet reads the first one, and lists only over HTTP.
//   - A pod with an error does not take the others of its list with it.
//   - What a manifest may cost to decode is bounded, as whoever writes one is not trusted with the agent. A file may
//     have 50,000 values (100,000 if it is larger than 1 MiB), in which each document counts as 15 values, each pod as
//     40 more and each object in a list as 3 more, 10,000 documents, lists of 1,000 elements, 100 levels, keys of 1 KiB and strings of 2 MiB as they are
//     in JSON. Aliases of YAML count as what they stand for, and its strings may not expand to more than twice the size
//     of the file and 1 MiB. A quantity has 64 characters at most and an exponent between -100 and 100.
//     The files of a directory may be 10,000, of 300,000 values and 32 MiB together; what does not fit is an error.
//   - Of two pods with the same name or UID the one that is already there stays, or else the one whose file sorts
//     first, and the other one is an error.
//   - A UID is made from the manifest as written, in canonical JSON, and not from the decoded object, so that it
//     stays the same when defaults change. It is the same number of digits, with another value.
//   - Mirror pods are not made.
//   - With Origin.Objects pods may refer to config maps and secrets, for agents that have these without an API server.
package source
