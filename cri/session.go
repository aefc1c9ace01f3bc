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

// Session is the client's end of a streaming session, as a [SessionRunner] uses it.
//
// A Read of Stdin that is under way when the session ends is not waited for, and its bytes are dropped: whoever owns Stdin
// makes it return. A Write that fails ends the session, and with it the command, with that error.
type Session struct {
	Stdin          io.Reader // nil: empty
	Stdout, Stderr io.Writer // nil: what comes is dropped
	// TTY gives the command a terminal, whose one output is Stdout: Stderr is nil. The end of Stdin says nothing to it.
	TTY bool
	// Resize has the sizes of the terminal, the newest last. Nil, or closed: it stays as it is.
	Resize <-chan TerminalSize
}

// SessionRunner runs streaming sessions itself, where a [Streamer] names a URL at which somebody else does.
type SessionRunner interface {
	// RunExec runs a command in a running container. It returns when the command has ended and all that it wrote has been
	// written to s, however slowly that goes; a non-zero exit code is a result, not an error. When ctx ends, the command
	// is killed with what it started, and the error is the cause of ctx.
	RunExec(ctx context.Context, containerID string, cmd []string, s Session) (exitCode int, err error)
	// RunAttach connects s to the process of a running container. It returns nil when the container has ended and its
	// output is written, and the cause of ctx when that ends; the container goes on. About a second after the end of
	// Stdin it returns nil too, unless that ends the container's own stdin (StdinOnce). TTY is as the container has it,
	// whatever s says. Stdin of a container that has none is not read. A client never delays the container: one that
	// is too far behind is ended with an error.
	RunAttach(ctx context.Context, containerID string, s Session) error
	// RunPortForward connects conn to a port on the loopback of a sandbox, and returns when both directions have ended
	// or, with its cause, when ctx has. It closes conn. Where conn has a method CloseWrite() error, it is called at the
	// end of what the port sends. A port that takes nothing for long ends its own connection only.
	RunPortForward(ctx context.Context, sandboxID string, port int32, conn io.ReadWriteCloser) error
}

// Checkpointer writes the state of running containers to files.
type Checkpointer interface {
	// Checkpoint writes an archive of a running container, which goes on, to the absolute path location. A zero timeout
	// leaves it to the runtime how long it may take; it has a resolution of one second, rounded up.
	Checkpoint(ctx context.Context, containerID, location string, timeout time.Duration) error
}

// PodCIDRSetter is told which addresses the pods of the node get, for runtimes that configure the network themselves.
type PodCIDRSetter interface {
	// SetPodCIDRs tells the runtime the ranges of the node, one of each family at most. It may be repeated.
	SetPodCIDRs(ctx context.Context, cidrs []netip.Prefix) error
}
