// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"time"
)

// Inspector returns one sandbox or container with all fields. A runtime implements it if its List omits the fields marked
// "detail" in [Sandbox] and [Container].
type Inspector interface {
	// SandboxStatus returns the sandbox with all fields, or [ErrNotFound].
	SandboxStatus(ctx context.Context, id string) (Sandbox, error)
	// ContainerStatus returns the container with all fields, or [ErrNotFound]. SandboxID may be empty, and so may PodUID if the
	// container has no label with it: the CRI status has neither field, but List returns both.
	ContainerStatus(ctx context.Context, id string) (Container, error)
}

// PodLister lists the objects of one pod at a lower cost than [Lister].
type PodLister interface {
	// ListPod returns the sandboxes and containers of the pod with this UID. For a pod unknown to the runtime it returns a Pod
	// without sandboxes and containers, not an error.
	ListPod(ctx context.Context, uid string) (Pod, error)
}

// EventType is the kind of change that an [Event] reports.
type EventType uint8

// The changes of a container or sandbox that a runtime streams. An event of a sandbox has the sandbox's ID.
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

// Event is one change of a container or sandbox that the runtime reported.
type Event struct {
	Type EventType
	ID   string    // ID of the container or sandbox
	Time time.Time // when the runtime created the event
	// Pod is the state of the pod when the runtime created the event, with all details. Only its identity is guaranteed: a
	// runtime may omit the objects, and events of one pod may arrive out of order. UID is empty if the runtime did not report the
	// pod of the event.
	Pod Pod
}

// EventStreamer streams changes of containers and sandboxes. Events may be lost: callers confirm each with List. CRI-O reports no
// [EventCreated].
type EventStreamer interface {
	// StreamEvents calls fn for each event, one call at a time. It returns a non-nil error when ctx ends, the stream breaks or fn
	// returns an error. Events that occur while the stream is being opened may be missed; nothing signals that it is open.
	StreamEvents(ctx context.Context, fn func(Event) error) error
}

// ExecResult is the output and the exit code of a command that has exited.
type ExecResult struct {
	Stdout, Stderr []byte // each truncated by the runtime to 16 MiB
	ExitCode       int    // 128+n if signal n killed the command
}

// Execer runs commands inside containers and returns their output.
type Execer interface {
	// ExecSync runs a command until it exits. It kills the command after timeout, rounded up to a whole second, and returns
	// [context.DeadlineExceeded]. With a zero timeout only ctx limits it. A non-zero exit code is not an error.
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (ExecResult, error)
}

// StreamOptions selects the streams of a streaming session. A TTY combines stdout and stderr, so TTY and Stderr are mutually
// exclusive.
type StreamOptions struct {
	Stdin, Stdout, Stderr, TTY bool
}

// Streamer prepares exec, attach and port-forward sessions. The runtime serves each session at the URL it returns.
type Streamer interface {
	// Exec returns the URL of a session that runs cmd in the container.
	Exec(ctx context.Context, containerID string, cmd []string, opts StreamOptions) (url string, err error)
	// Attach returns the URL of a session connected to the container's own process.
	Attach(ctx context.Context, containerID string, opts StreamOptions) (url string, err error)
	// PortForward returns the URL of a session that forwards connections to ports of the sandbox.
	PortForward(ctx context.Context, sandboxID string, ports []int32) (url string, err error)
}

// LogReopener lets a caller rotate the log files of containers.
type LogReopener interface {
	// ReopenContainerLog makes the runtime reopen the container's log file by its path. The container must be running.
	ReopenContainerLog(ctx context.Context, id string) error
}

// Updater changes the resources of running containers and sandboxes.
type Updater interface {
	// UpdateContainer sets the resources of a container. Zero fields of resources remain unchanged. An error that wraps
	// errors.ErrUnsupported means that this runtime updates no container.
	UpdateContainer(ctx context.Context, id string, resources *Resources, annotations map[string]string) error
	// UpdateSandbox passes the new sum of a pod's container resources, and its overhead, to the runtime.
	UpdateSandbox(ctx context.Context, id string, overhead, resources *Resources) error
}

// StatsLister measures all running containers and sandboxes. On CRI-O these calls hang while any container is being stopped:
// callers set a deadline, and use a [PodStatsLister] for the usage of a single pod.
type StatsLister interface {
	// ContainerStats returns the usage of every running container.
	ContainerStats(ctx context.Context) ([]ContainerStats, error)
	// SandboxStats returns the usage of every ready sandbox, including its network.
	SandboxStats(ctx context.Context) ([]SandboxStats, error)
}

// PodStatsLister measures the containers of one sandbox. Containers of other pods that are being stopped do not delay it.
type PodStatsLister interface {
	// PodContainerStats returns the usage of every running container in a sandbox: none if the sandbox does not exist.
	PodContainerStats(ctx context.Context, sandboxID string) ([]ContainerStats, error)
}

// StatusReporter returns the version, the conditions and the cgroup driver of the runtime.
type StatusReporter interface {
	// Version returns the name and the versions of the runtime.
	Version(ctx context.Context) (Version, error)
	// Status returns the runtime's conditions and features.
	Status(ctx context.Context) (Status, error)
	// CgroupDriver returns the driver that determines the form of cgroup names for the runtime.
	CgroupDriver(ctx context.Context) (CgroupDriver, error)
}
