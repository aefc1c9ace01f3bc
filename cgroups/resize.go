// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "context"

// ContainerSize holds the resources of a container that can be changed while it runs. Zero is no request or no limit.
type ContainerSize struct {
	CPURequest, CPULimit       int64 // millicores
	MemoryRequest, MemoryLimit int64 // bytes; a negative request is unknown
}

// ContainerResize describes the in-place resize of a running container.
type ContainerResize struct {
	Name        string
	From, To    ContainerSize
	MemoryUsage int64 // bytes in use; needed only if the memory limit is lowered
}

// Resizer is the interface to the container runtime for the in-place resize of a pod.
type Resizer interface {
	// ResizeSandbox announces the new limits of the pod's cgroup to the runtime (UpdatePodSandboxResources of the CRI). An error
	// means that the runtime rejects them.
	ResizeSandbox(ctx context.Context, r Resources) error
	// ResizeContainer sets the resources of a running container to size.
	ResizeContainer(ctx context.Context, name string, size ContainerSize) error
}
