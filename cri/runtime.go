// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"time"
)

// Lister reads what a runtime holds.
type Lister interface {
	// List returns every sandbox and container of the runtime, dead ones included. Snapshot.Time is taken before
	// the runtime is asked. Where the runtime is also an [Inspector], the listed objects may lack the fields that
	// are marked "detail".
	List(ctx context.Context) (Snapshot, error)
}

// ListerFunc adapts a function to a [Lister].
type ListerFunc func(ctx context.Context) (Snapshot, error)

// List calls f.
func (f ListerFunc) List(ctx context.Context) (Snapshot, error) { return f(ctx) }

// Sandboxes makes and ends sandboxes.
type Sandboxes interface {
	// RunSandbox creates and starts a sandbox and returns its ID. When it fails, the runtime may have left a
	// sandbox in state [SandboxNotReady] that a later List shows. Where another sandbox has the name, the error is
	// [ErrAlreadyExists], or the ID is that of the other sandbox, in any state, as with CRI-O.
	RunSandbox(ctx context.Context, c *SandboxConfig) (id string, err error)
	// StopSandbox kills what still runs in the sandbox and tears down its network. It may be repeated; a sandbox
	// that is gone is success. CRI-O first sends the stop signal and waits for as long as the deadline of ctx
	// allows: a caller that must not wait stops the containers before.
	StopSandbox(ctx context.Context, id string) error
	// RemoveSandbox removes the sandbox and every container in it, by force if they run. A sandbox that is gone
	// is success.
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers makes and ends containers.
type Containers interface {
	// CreateContainer creates a container in a sandbox and returns its ID. s is the config that the sandbox was
	// run with. Where another container has the name, the error is [ErrAlreadyExists], or the ID is that of the
	// other container, in any state, as with CRI-O.
	CreateContainer(ctx context.Context, sandboxID string, c *ContainerConfig, s *SandboxConfig) (id string, err error)
	// StartContainer starts a created container.
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal, waits up to grace, then kills, and returns when the container has
	// exited. Grace has a resolution of one second, rounded up; zero kills at once. A container that is gone or
	// has exited is success.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	// RemoveContainer removes a container, by force if it runs. One that is gone is success.
	RemoveContainer(ctx context.Context, id string) error
}

// Runtime is what is needed to run pods.
type Runtime interface {
	Lister
	Sandboxes
	Containers
}

// Images reads and removes images.
type Images interface {
	// ListImages returns every image.
	ListImages(ctx context.Context) ([]Image, error)
	// ImageStatus returns the image that a reference or an ID names, or [ErrNotFound].
	ImageStatus(ctx context.Context, s ImageSpec) (Image, error)
	// RemoveImage removes an image with all its tags. One that is gone is success.
	RemoveImage(ctx context.Context, s ImageSpec) error
	// ImageUsage returns the usage of the file systems that hold images and container layers.
	ImageUsage(ctx context.Context) (ImageUsage, error)
}

// Puller fetches images.
type Puller interface {
	// PullImage pulls an image and returns the reference to create containers with (a digest or an ID). auth may
	// be nil; s is the sandbox the image is for and may be nil.
	PullImage(ctx context.Context, i ImageSpec, auth *Auth, s *SandboxConfig) (ref string, err error)
}
