// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"time"
)

// Inspector reads one object in full. A runtime whose List leaves out the fields marked "detail" implements it;
// one whose List is complete need not.
type Inspector interface {
	// SandboxStatus returns the sandbox with all fields, or [ErrNotFound].
	SandboxStatus(ctx context.Context, id string) (Sandbox, error)
	// ContainerStatus returns the container with all fields, or [ErrNotFound]. SandboxID, and PodUID where no label
	// tells it, may be missing: a status of the CRI has neither, and List has both.
	ContainerStatus(ctx context.Context, id string) (Container, error)
}

// PodLister lists one pod for less than a full List costs.
type PodLister interface {
	// ListPod returns the sandboxes and containers of the pod with this UID. A pod that the runtime does not know
	// is a Pod without sandboxes and containers, not an error.
	ListPod(ctx context.Context, uid string) (Pod, error)
}

// EventType is what happened to a container or sandbox.
type EventType uint8

// The events a runtime streams. A sandbox reports them under its own ID.
const (
	EventCreated EventType = iota
	EventStarted
	EventStopped
	EventDeleted
)

// String returns "created", "started", "stopped" or "deleted".
func (t EventType) String() string {
	return name(t, "created", "started", "stopped", "deleted")
}

// Event is one change that a runtime reports by itself.
type Event struct {
	Type EventType
	ID   string    // of the container or sandbox
	Time time.Time // when the runtime made the event
	// Pod is the pod as the runtime saw it when it made the event, details included. Only its identity is certain:
	// a runtime may leave the rest out, and events of one pod may arrive in another order than they were made.
	// UID is empty when the runtime did not say whose event it is.
	Pod Pod
}

// EventStreamer reports changes as they happen. Events may be lost: a stream is a hint, List is the truth. CRI-O reports
// no [EventCreated].
type EventStreamer interface {
	// StreamEvents calls fn for each event, one at a time, until ctx ends, the stream breaks or fn returns an
	// error, and returns the cause; it never returns nil. There is no sign when the stream has begun: what
	// happens around its start may be missed.
	StreamEvents(ctx context.Context, fn func(Event) error) error
}

// ExecResult is the end of a command that was run inside a container.
type ExecResult struct {
	Stdout, Stderr []byte // each cut by the runtime at 16 MiB
	ExitCode       int    // 128+n where signal n ended it
}

// Execer runs commands inside containers.
type Execer interface {
	// ExecSync runs a command to its end. A zero timeout sets no limit but that of ctx; a command that runs out
	// of time is killed and the error is [context.DeadlineExceeded]. The timeout has a resolution of one second,
	// rounded up. A non-zero exit code is a result, not an error.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (ExecResult, error)
}

// StreamOptions says which streams a streaming session has. A TTY carries stdout and stderr as one, so TTY and
// Stderr exclude each other.
type StreamOptions struct {
	Stdin, Stdout, Stderr, TTY bool
}

// Streamer prepares interactive sessions; the runtime serves them itself at the URL it returns.
type Streamer interface {
	// Exec returns the URL of a session that runs cmd.
	Exec(ctx context.Context, containerID string, cmd []string, o StreamOptions) (url string, err error)
	// Attach returns the URL of a session with the container's own process.
	Attach(ctx context.Context, containerID string, o StreamOptions) (url string, err error)
	// PortForward returns the URL of a session that forwards to ports inside the sandbox.
	PortForward(ctx context.Context, sandboxID string, ports []int32) (url string, err error)
}

// LogReopener lets log files be rotated.
type LogReopener interface {
	// ReopenContainerLog makes the runtime open the container's log file anew. The container must be running.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Updater changes what a container may use while it runs.
type Updater interface {
	// UpdateContainer sets the resources of a container: what is zero in r stays as it is.
	UpdateContainer(ctx context.Context, id string, r *Resources, annotations map[string]string) error
	// UpdateSandbox tells the runtime the new sum of a pod's resources and overhead.
	UpdateSandbox(ctx context.Context, id string, overhead, resources *Resources) error
}

// StatsLister measures what runs. On CRI-O a call about all containers hangs for as long as one of them is being stopped:
// a caller that needs the usage of one pod uses a [PodStatsLister], and every caller sets a deadline.
type StatsLister interface {
	// ContainerStats returns the usage of every running container.
	ContainerStats(ctx context.Context) ([]ContainerStats, error)
	// SandboxStats returns the usage of every ready sandbox, its network included.
	SandboxStats(ctx context.Context) ([]SandboxStats, error)
}

// PodStatsLister measures the containers of one sandbox, whatever happens to other pods at the time.
type PodStatsLister interface {
	// PodContainerStats returns the usage of every running container in a sandbox: none for a sandbox that is gone.
	PodContainerStats(ctx context.Context, sandboxID string) ([]ContainerStats, error)
}

// StatusReporter describes the runtime itself.
type StatusReporter interface {
	// Version returns who the runtime is.
	Version(ctx context.Context) (Version, error)
	// Status returns the runtime's conditions and features.
	Status(ctx context.Context) (Status, error)
	// CgroupDriver returns the driver that the runtime wants pod cgroups named for.
	CgroupDriver(ctx context.Context) (CgroupDriver, error)
}
