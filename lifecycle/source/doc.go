// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package source reads pods from manifests in a directory or behind a URL, and passes on the full set each time it changes.
// It runs no pod: what happens to the pods is decided by package lifecycle.
//
// # Model
//
// A manifest is YAML or JSON and holds pods, PodLists or Lists of pods, any number of them in documents separated by "---".
// [Parse] decodes it strictly, makes its pods static pods of this node (UID, name, annotations), sets defaults and validates
// them. A [Dir] does so for the files of a directory, an [HTTP] for the answer of a server.
//
//	dir := source.NewDir("/etc/manifests", source.DirOptions{NodeName: "edge-1"})
//	err := dir.Run(ctx, func(u source.Update) {
//		for _, e := range u.Errs {
//			log.Print(e) // /etc/manifests/web.yaml:12: spec.containers[0].imagee: unknown field
//		}
//		err := reconciler.Set(u.PodSet)
//		...
//	})
//
// A [Handler] serves the files of a directory over HTTP and takes new ones, for agents that are handed their pods that way.
//
// A program that builds its pods in code calls [Static] for each of them: it does for a pod what Parse does for those of a
// manifest.
//
// An error in one pod or one file never affects another. While a file has an error, the pods that it held before stay in
// the set, and everything in it that is valid is followed. The same holds for a directory that disappears and a server that
// fails: a pod leaves the set only when a manifest that can be read no longer has it. To remove all pods, empty the
// directory or serve an empty PodList.
//
// Nothing is remembered across a restart of the agent. A file that is invalid when the agent starts holds pods that are not
// known, and some of them may be running. The set is incomplete then: its consumer must not stop a running pod that no
// source has named, until every source is complete.
//
// A manifest that is removed, or moved away, and is there again leaves the set until it has been read: its pods are restarted, as
// in the kubelet, also with the same content. One that is replaced by a rename or written in place never leaves the set. Dir
// learns of a short removal from the kernel; without inotify it stays unseen.
//
// A change counts when the file has not changed for DirOptions.Settle. This keeps half-written files from affecting their pods. A writer that pauses for longer in the middle of a file can
// still be seen halfway: write elsewhere and rename to be safe.
//
// What belongs here: where pods come from, and what makes a manifest a static pod of this node. What does not: defaults and
// validation themselves, and anything that is done to a pod.
//
// # Concurrency
//
// Run owns all state. It calls its sink from its own goroutine and waits for it. Pods in an update are shared with later
// updates and must not be changed. A pod that did not change keeps its pointer, so consumers can compare pointers.
//
// # Errors
//
// Run returns nil when its context ends. Everything that is wrong with manifests is in [Update].Errs, with the file, the
// line and the field.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/config of Kubernetes 1.37. A user has to know:
//
//   - An invalid manifest, a missing path and an empty HTTP answer keep the last good pods; the kubelet removes them.
//   - Unknown and duplicate fields are errors.
//   - A UID is computed from the manifest as written: it differs from the kubelet's, so static pods are replaced when a node
//     changes from one to the other.
//   - Of two pods with the same name or UID, the one that is in the set already stays, or else the one whose file sorts
//     first; the other is an error.
//   - The cost of decoding a manifest is bounded; the limits are in DIFFERENCES.md.
//
// All others are in DIFFERENCES.md.
//
// Test kit: the tests of a consumer call a sink with an [Update], or [Static] for single pods; package critest has a
// runtime in memory for them.
package source
