// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"io"
	"net/netip"
	"time"
)

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Width, Height uint16
}

// Session contains the client's streams of an exec or attach session of a [SessionRunner].
//
// When the session ends, it does not wait for a Read of Stdin in progress and drops the bytes of that Read: the owner of Stdin
// must unblock the Read. A failed Write ends the session with that error and kills the command.
type Session struct {
	Stdin          io.Reader // nil: empty
	Stdout, Stderr io.Writer // nil: output is discarded
	// TTY allocates a terminal for the command. All output goes to Stdout, and Stderr must be nil. The end of Stdin is not
	// signalled to the command.
	TTY bool
	// Resize yields terminal sizes; the latest applies. Nil or closed means no further changes.
	Resize <-chan TerminalSize
}

// SessionRunner runs streaming sessions inside the call. A [Streamer], in contrast, returns a URL at which the runtime serves the
// session.
type SessionRunner interface {
	// RunExec runs a command in a running container. It returns when the command has exited and all its output is written
	// to session, however slow its client is. A non-zero exit code is not an error. When ctx ends, RunExec kills the command and its child processes,
	// and returns the cause of ctx.
	RunExec(ctx context.Context, containerID string, cmd []string, session Session) (exitCode int, err error)
	// RunAttach connects session to the process of a running container. It returns nil when the container has exited and its output is
	// written. When ctx ends, it returns the cause of ctx, and the container continues.
	//
	// About a second after the end of Stdin it returns nil too, unless this closes the container's stdin (StdinOnce). The
	// container determines whether there is a TTY, not session. Stdin is not read if the container has no stdin. A slow client never
	// delays the container: a client that is too far behind gets an error.
	RunAttach(ctx context.Context, containerID string, session Session) error
	// RunPortForward connects conn to a port on the loopback interface of a sandbox. It returns when both directions are closed,
	// or with the cause of ctx when ctx ends. It closes conn. If conn has a CloseWrite() error method, RunPortForward calls it at
	// the end of the port's output. A port that stops reading ends only its own connection.
	RunPortForward(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) error
}

// Checkpointer writes the state of running containers to checkpoint archives.
type Checkpointer interface {
	// Checkpoint writes a checkpoint archive of a running container to the absolute path location. The container continues.
	// timeout is rounded up to a whole second; zero selects the runtime's default.
	Checkpoint(ctx context.Context, containerID, location string, timeout time.Duration) error
}

// PodCIDRSetter receives the pod CIDRs of the node, for runtimes that configure the pod network themselves.
type PodCIDRSetter interface {
	// SetPodCIDRs sets the node's pod CIDRs, at most one of each IP family. It may be repeated.
	SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error
}
