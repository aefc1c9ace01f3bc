// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// killReplyTimeout limits the wait for the shim's reply after the client of a command has disconnected.
const killReplyTimeout = 3 * time.Second

// Run runs a command in the environment of the container, with fds as its stdin, stdout and stderr, or its terminal if tty is
// set. It closes fds and returns the exit code. When ctx ends, it kills the command and its child processes. For a shim of an
// older agent, it returns [ErrOldShim].
func (h *Handle) Run(ctx context.Context, argv []string, tty bool, fds []int) (int, error) {
	r := request{Op: opRun, Version: protocol, Argv: argv, TTY: tty}
	conn, err := h.openRequest(ctx, r, fds)
	closeAll(fds)
	if err != nil {
		return 0, h.explainError(ctx, r, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.CloseWrite() // disconnects the client
		_ = conn.SetReadDeadline(time.Now().Add(killReplyTimeout))
	})
	defer stop()
	var answer reply
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return 0, h.explainError(ctx, r, err)
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if answer.Error == "" {
		// Without this byte the shim assumes that the client has disconnected, and kills the command's child processes. The write
		// fails if the shim timed out or exited; the result is valid anyway.
		_, _ = conn.Write([]byte{resultTaken})
	}
	return answer.Code, answer.replyError(r)
}

// Attachment is a connection of a client to the process of a shim. All methods may be called concurrently.
type Attachment struct {
	handle        *Handle
	req           request
	conn          *net.UnixConn
	rest          *json.Decoder
	file          *os.File // the input, the terminal, or both
	attachedReply reply
	close         func()
	closed        chan struct{}
}

// AttachOptions selects the files that [Handle.Attach] requests.
type AttachOptions struct {
	Input    bool // stdin of the process
	Terminal bool // terminal of the process, to set its size
}

// Attach makes the shim copy stdout of the container's process to fds[0] and stderr to fds[1], unless they are -1, and closes
// them. The shim disconnects a client whose pipe is full. Once Attach has returned, ctx has no effect.
func (h *Handle) Attach(ctx context.Context, opts AttachOptions, fds [2]int) (*Attachment, error) {
	r := request{Op: opAttach, Version: protocol, Stdin: opts.Input, Terminal: opts.Terminal, Stdout: fds[0] >= 0, Stderr: fds[1] >= 0}
	var wanted []int
	for _, fd := range fds {
		if fd >= 0 {
			wanted = append(wanted, fd)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := h.openRequest(ctx, r, wanted)
	closeAll(wanted)
	if err != nil {
		return nil, h.explainError(ctx, r, err)
	}
	a, err := h.readAttached(ctx, r, conn)
	if err != nil {
		conn.Close()
	}
	return a, err
}

// readAttached reads the shim's reply to an attach request, and returns the attachment.
func (h *Handle) readAttached(ctx context.Context, req request, conn *net.UnixConn) (*Attachment, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	var answer reply
	fds, rest, err := readMessage(conn, &answer)
	if err == nil {
		if err = answer.replyError(req); err == nil && len(fds) > 1 {
			err = errors.New("attach through shim: more than one descriptor came")
		}
	} else {
		err = h.explainError(ctx, req, err)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	a := &Attachment{handle: h, req: req, conn: conn, rest: rest, attachedReply: answer, closed: make(chan struct{})}
	a.close = sync.OnceFunc(func() {
		close(a.closed)
		conn.Close()
	})
	if len(fds) == 1 {
		a.file = os.NewFile(uintptr(fds[0]), "input")
	}
	return a, nil
}

// Input returns the stdin of the container's process. It is nil if the process has no stdin or AttachOptions.Input was not set.
// The caller closes the file.
func (a *Attachment) Input() *os.File {
	if !a.attachedReply.Input {
		return nil
	}
	return a.file
}

// Terminal returns the master of the terminal, which may be the same file as Input. It is nil if the process has no terminal,
// or AttachOptions requested neither Input nor Terminal. The caller closes the file.
func (a *Attachment) Terminal() *os.File {
	if !a.attachedReply.TTY {
		return nil
	}
	return a.file
}

// StaysAfterInput reports whether the client must stay attached after its input has ended. This is true if the end of the
// input closes the stdin of the process, because more output can follow.
func (a *Attachment) StaysAfterInput() bool { return a.attachedReply.Once && !a.attachedReply.TTY }

// EndInput notifies the shim that this client sends no more input.
func (a *Attachment) EndInput() {
	_, _ = a.conn.Write([]byte{inputEnded}) // fails if the shim has exited
}

// Wait waits until the client is detached. It returns nil if the process has exited or Close was called. If the shim has
// disconnected the client, it returns the reason.
func (a *Attachment) Wait(ctx context.Context) error {
	var answer reply
	err := a.rest.Decode(&answer)
	select {
	case <-a.closed:
		return nil
	default:
	}
	if err == nil {
		return answer.replyError(a.req)
	}
	return a.handle.explainError(ctx, a.req, err)
}

// Close disconnects from the process. Wait then returns nil.
func (a *Attachment) Close() { a.close() }
