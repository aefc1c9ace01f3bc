// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "github.com/seed81659283/nodeagent/internal/lifecycle/executor"

// What the options and hooks of a [Reconciler] are made of, and package executor uses.
type (
	// Event is something that was done to a pod, or went wrong with it.
	Event = executor.Event
	// ImageSource makes the image of a container present on the node.
	ImageSource = executor.ImageSource
	// Images is an [ImageSource] that pulls, with the secrets of the pod.
	Images = executor.Images
	// PodResources are what a pod has on its node beside its sandbox and containers, such as volumes.
	PodResources = executor.PodResources
	// ContainerStart is an attempt to start a container.
	ContainerStart = executor.ContainerStart
	// PodCgroups keeps the cgroups that hold whole pods to their limits. *podtree.Tree is one.
	PodCgroups = executor.PodCgroups
	// WorkHooks are told what is done for pods and how long it takes.
	WorkHooks = executor.WorkHooks
	// StartError is why a container was not started, with the reason for its status.
	StartError = executor.StartError
)
