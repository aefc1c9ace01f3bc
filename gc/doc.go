// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package gc removes what nobody on a node needs any more: images, and what pods have left behind, which is containers, sandboxes,
// logs, links to logs, and directories. It does not watch the disk for others, ends nothing that runs, and leaves alone what
// has an owner who removes it.
//
// # Model
//
// [PlanImages], [PlanContainers] and [PlanSandboxes] are pure: what there is and the time in, what goes and in which order out.
// [Images] and [Containers] find out what there is, ask right before each removal whether it still holds, and remove.
//
//	collector, err := gc.NewImages(client, client, gc.ImageOptions{
//		Puller: puller,                       // an images.Puller, which knows what is about to be used
//		Wanted: func() []string { ... },      // the images that pods of the node name
//		Ages:   "/var/lib/agent/images.json", // since when images are there, and when they were last used
//	})
//	go collector.Run(ctx)                     // every 5 minutes, where the disk is too full
//	freed, err := collector.Reclaim(ctx, want) // now, for somebody who needs room
//	if short, ok := errors.AsType[*gc.ShortError](err); ok {
//		log.Print(short) // how much is missing, and for each reason what stayed
//	}
//
// # Images
//
// An image goes when nothing uses it, first the one that was used the longest time ago. What a container was made from
// or mounts is used, whoever made the container. Nor does an image go that the runtime has pinned; that a pod names, or is about to
// use; that is younger than the minimum age; or that no registry is known to give back, because it has no digest and there is no
// record of a pull: an image that was imported would be lost. Bytes that are freed are measured on the disk, since images share
// layers and the sizes that a runtime reports count those for each.
//
// # Pods
//
// ContainerOptions.Pod says who removes what is left of a pod. A lifecycle.Reconciler removes what its pods leave at once, so that
// [OwnedBy] with its Owned leaves to this package what has no owner: leftovers of runtimes, of other agents where Mine says so,
// and of agents that lost their state. Without a Reconciler Pod says what the pod workers of a kubelet know, and the policy of the
// kubelet applies in full: so many instances of each container stay, and so many on the node.
//
// A directory goes when its pod was removed, the runtime has nothing of the pod, and no entry was made in it for a while. What is
// mounted in it, and what is in a volume, is never removed, and no link is followed.
//
// What belongs here is what goes because it is old, unused or without an owner. What does not: pods that have to end for want of
// room (package eviction), logs that grow too large (package logs), and volumes and networks, which are given back by whoever made
// them.
//
// # Concurrency
//
// All methods may be called from any goroutine; of two passes of a collector one waits for the other. Run is called once, and owns no
// other goroutine. Hooks are called by the goroutine of the pass, with no lock held. A call to the runtime has two minutes. One
// that removes an image and does not return even then is left alone: its goroutine ends when the call does, the image stays claimed,
// and it is not tried again before.
//
// # Errors
//
// What fails is named, with its object and its cause, and the rest goes on; the errors of a pass are joined. What cannot be found
// out ends the pass before anything is removed: a list that fails, or a container that cannot be asked which images it mounts. A
// [*ShortError] says why there is less room than was wanted.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/images/image_gc_manager.go and pkg/kubelet/kuberuntime/kuberuntime_gc.go of Kubernetes 1.37. A user has
// to know, of what DIFFERENCES.md has in full:
//
//   - Images that no registry gives back stay, and so do those that pods name or are about to use. ImagePolicy.Kubelet, and no
//     Puller and Wanted, is the kubelet's way.
//   - Freed bytes are measured; ImagePolicy.Kubelet believes sizes.
//   - An image that was never used is as old as it is on the node, and ages outlive the agent.
//   - A container or a directory that cannot be removed is an error of the pass; the kubelet logs it.
//   - A directory goes only when the runtime has nothing of its pod, and it has not changed for ContainerOptions.MinDirAge.
//
// # When not to use it
//
// For a runtime without images, such as package process, there is nothing for [Images] to do.
//
// Test kit: package critest has a runtime in memory, with images and containers.
package gc
