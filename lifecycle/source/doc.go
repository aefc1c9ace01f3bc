// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package source reads static pods from manifests in a directory or at a URL, and reports the full set of pods after each change.
// It does not run pods; package lifecycle does.
//
// # Model
//
// A manifest is YAML or JSON with documents separated by "---". Each document is a Pod, a PodList or a List of pods. [Parse]
// decodes it strictly, makes each pod a static pod of this node (UID, name, annotations), sets defaults and validates it. A [Dir]
// reads the files of a directory, an [HTTP] the response of a server.
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
// A [Handler] serves and accepts the manifests of a directory over HTTP. [Static] makes a static pod from a pod that is built in
// code.
//
// An error in one pod or file does not affect other pods. While a file has an error, its previous pods stay in the set, and its
// valid pods are updated. The previous pods also stay if the directory disappears or the server fails. To remove all pods, empty
// the directory or serve an empty PodList.
//
// Nothing is stored across a restart of the agent. If a file is invalid when the agent starts, its pods are unknown, and the set
// is incomplete: running pods that no source lists must not be stopped until every source is complete.
//
// A manifest that is removed and recreated restarts its pods, as in the kubelet, even with equal content. Replacing a manifest by
// a rename, or writing it in place, does not. Without inotify, a short removal is not noticed.
//
// A change counts when the file is unchanged for DirOptions.StableFor, so that a partly written file does not affect its pods.
// For a slow writer this may be too short: write another file and rename it.
//
// # Concurrency
//
// Run calls its sink from its own goroutine and waits for it. Pods of an update are shared with later updates and must not be
// modified. An unchanged pod keeps its pointer.
//
// # Errors
//
// Run returns nil when its context ends. [Update].Errs has all errors of manifests, with file, line and field.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/config of Kubernetes 1.37. DIFFERENCES.md has all differences. A user has to know these:
//
//   - An invalid manifest, a missing path and an empty HTTP response keep the last valid pods; the kubelet removes them.
//   - Unknown and duplicate fields are errors.
//   - UIDs equal those of the kubelet 1.37, so that a node can change over; another minor version of the kubelet has other UIDs.
//   - Of two pods with one name or UID, the pod that is already in the set stays; else the file that sorts first wins.
//   - The cost of decoding a manifest is limited.
//
// Test kit: tests call a sink with an [Update], or use [Static]; package critest has an in-memory runtime.
package source
