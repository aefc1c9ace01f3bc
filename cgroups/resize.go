// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroups

import "context"

// ContainerSize is what a container has, or is to have, of what can be changed while it runs. Zero is no request or no limit.
type ContainerSize struct {
	CPURequest, CPULimit       int64 // milli-CPU
	MemoryRequest, MemoryLimit int64 // bytes; a request below zero is one that is not known
}

// ContainerResize is a running container that is resized without a restart.
type ContainerResize struct {
	Name        string
	From, To    ContainerSize
	MemoryUsage int64 // bytes; looked at only where its memory limit is lowered
}

// Resizer is the container runtime's part in the resize of a pod.
type Resizer interface {
	// ResizeSandbox tells the runtime what the cgroup of the pod is about to have (UpdatePodSandboxResources of the
	// CRI). An error refuses that.
	ResizeSandbox(ctx context.Context, r Resources) error
	// ResizeContainer gives a running container what it shall have.
	ResizeContainer(ctx context.Context, name string, size ContainerSize) error
}
