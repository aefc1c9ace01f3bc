// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package gc removes unused images and the remains of pods: containers, sandboxes, logs, links to logs, and pod directories. It
// stops no running container, and removes nothing that another component owns and removes.
//
//	collector, err := gc.NewImages(client, client, gc.ImageOptions{
//		Puller:    puller,                       // an images.Puller, which reserves images about to be used
//		PodImages: func() []string { ... },      // images named by pods of the node
//		Ages:      "/var/lib/agent/images.json", // when images were detected and last used
//	})
//	go collector.Run(ctx)                      // every 5 minutes, if the disk is too full
//	freed, err := collector.Reclaim(ctx, want) // now
//	if short, ok := errors.AsType[*gc.ShortError](err); ok {
//		log.Print(short) // how much is missing, and why the remaining images stay
//	}
//
// [PlanImages], [PlanContainers] and [PlanSandboxes] are pure functions that return the removals in order. [Images] and
// [Containers] list the objects, check again right before each removal, and remove.
//
// # Images
//
// Unused images are removed, least recently used first. An image stays if a container uses or mounts it, a pod names it, it is
// about to be used, the runtime has pinned it, or it is younger than the minimum age. It also stays if no registry is known to
// have it (no digest and no record of a pull), because an imported image would be lost. Freed bytes are measured on the disk,
// because images share layers.
//
// # Pods
//
// ContainerOptions.Pod decides who removes the remains of a pod. A lifecycle.Reconciler removes those of its pods at once. With
// [OwnedBy] and its Owned this package removes only objects without an owner: leftovers of runtimes, and of agents that lost
// their state. Without a Reconciler, Pod returns the states of the kubelet's pod workers, and the limits of the policy apply.
//
// A directory is removed if its pod was removed, the runtime has no object of the pod, and the directory has not changed for a
// while. Mounted directories and volume contents are never removed, and links are not followed.
//
// # Concurrency
//
// All methods may be called concurrently; passes of a collector run one after another. Run is called once. Hooks are called by
// the goroutine of the pass without locks. Each call to the runtime takes at most two minutes. A removal of an image that does
// not return even then is abandoned: the image stays claimed, and is not tried again before the call returns.
//
// # Errors
//
// Errors name the object and the cause; the pass continues, and its errors are joined. If a list or the mounts of a container
// cannot be read, the pass ends before any removal. A [*ShortError] explains why less space was freed than requested.
//
// # Differs from the kubelet
//
// The model is pkg/kubelet/images/image_gc_manager.go and pkg/kubelet/kuberuntime/kuberuntime_gc.go of Kubernetes 1.37.
// DIFFERENCES.md has the whole list. The differences that affect callers most:
//
//   - Images that no registry has, and images that pods name or are about to use, stay. ImagePolicy.Kubelet without Puller and PodImages selects the kubelet's behaviour.
//   - Freed bytes are measured; ImagePolicy.Kubelet adds up sizes.
//   - An image that was never used is as old as its detection, and ages survive a restart of the agent.
//   - A failed removal is an error of the pass; the kubelet only logs it.
//   - A directory is removed only if the runtime has no object of its pod and it has not changed for ContainerOptions.MinDirAge.
//
// # Test kit
//
// Package critest has a runtime in memory with images and containers.
package gc
