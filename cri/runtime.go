// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"time"
)

// Lister lists the sandboxes and containers of a runtime.
type Lister interface {
	// List returns every sandbox and container of the runtime, including stopped ones. Snapshot.Time is taken before the call to
	// the runtime. If the runtime is also an [Inspector], the listed objects may omit the fields marked "detail".
	List(ctx context.Context) (Snapshot, error)
}

// ListerFunc adapts a function to a [Lister].
type ListerFunc func(ctx context.Context) (Snapshot, error)

// List returns the results of f.
func (f ListerFunc) List(ctx context.Context) (Snapshot, error) { return f(ctx) }

// Sandboxes creates, stops and removes sandboxes.
type Sandboxes interface {
	// RunSandbox creates and starts a sandbox and returns its ID. After an error, a sandbox in state [SandboxNotReady] may
	// remain, which a later List returns. If another sandbox has the name, RunSandbox returns [ErrAlreadyExists] or, with CRI-O,
	// the ID of that sandbox in any state.
	RunSandbox(ctx context.Context, config *SandboxConfig) (id string, err error)
	// StopSandbox kills the running containers of the sandbox and tears down its network. It may be repeated and succeeds for a
	// sandbox that does not exist. CRI-O first sends the stop signal and waits until the deadline of ctx: a caller that must not
	// wait stops the containers first.
	StopSandbox(ctx context.Context, id string) error
	// RemoveSandbox removes the sandbox and every container in it, by force if they run. It succeeds for a sandbox that does not
	// exist.
	RemoveSandbox(ctx context.Context, id string) error
}

// Containers creates, starts, stops and removes containers.
type Containers interface {
	// CreateContainer creates a container in a sandbox and returns its ID. sandboxConfig is the config that was passed to RunSandbox. If
	// another container has the name, CreateContainer returns [ErrAlreadyExists] or, with CRI-O, the ID of that container in any
	// state.
	CreateContainer(ctx context.Context, sandboxID string, config *ContainerConfig, sandboxConfig *SandboxConfig) (id string, err error)
	// StartContainer starts a created container.
	StartContainer(ctx context.Context, id string) error
	// StopContainer sends the stop signal, waits up to grace, then kills, and returns when the container has exited. It rounds
	// grace up to a whole second; zero kills at once. It succeeds for a container that has exited or does not exist.
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	// RemoveContainer removes a container, by force if it runs. It succeeds for a container that does not exist.
	RemoveContainer(ctx context.Context, id string) error
}

// Runtime lists and changes sandboxes and containers: the calls that are required to run pods.
type Runtime interface {
	Lister
	Sandboxes
	Containers
}

// Images lists and removes images.
type Images interface {
	// ListImages returns every image in the runtime's store.
	ListImages(ctx context.Context) ([]Image, error)
	// ImageStatus returns the image with this reference or ID, or [ErrNotFound].
	ImageStatus(ctx context.Context, image ImageSpec) (Image, error)
	// RemoveImage removes an image with all its tags. It succeeds for an image that does not exist.
	RemoveImage(ctx context.Context, image ImageSpec) error
	// ImageUsage returns the usage of the file systems that store images and container layers.
	ImageUsage(ctx context.Context) (ImageUsage, error)
}

// Puller pulls images from registries.
type Puller interface {
	// PullImage pulls an image and returns the reference to create containers with, a digest or an ID. auth may be nil for an
	// anonymous pull. sandbox is the config of the sandbox that needs the image, and may be nil.
	PullImage(ctx context.Context, image ImageSpec, auth *Auth, sandbox *SandboxConfig) (ref string, err error)
}

// ImageService is the image service of the CRI: a runtime that lists, removes and pulls images.
type ImageService interface {
	Images
	Puller
}
