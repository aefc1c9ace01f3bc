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

// Run runs a command beside the process, with descriptors that it closes: stdin, stdout and stderr, or with tty one terminal.
// When ctx ends, it kills the command and its child processes. A shim of an older agent returns [ErrOldShim].
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

// Attach copies the output of the process to fds, the descriptors of stdout and stderr, or -1. It closes fds. They do not block:
// a client whose pipe is full is dropped. ctx limits only the call itself.
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

// readAttached reads the first reply to an attach request.
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

// Input returns the stdin of the process, or nil if it has none or input was not requested. The caller closes it.
func (a *Attachment) Input() *os.File {
	if !a.attachedReply.Input {
		return nil
	}
	return a.file
}

// Terminal returns the terminal master of the process, or nil if it has none or nothing was requested. It may be the same file as
// Input. The caller closes it.
func (a *Attachment) Terminal() *os.File {
	if !a.attachedReply.TTY {
		return nil
	}
	return a.file
}

// StaysAfterInput reports whether the client stays attached after the end of its input: this closes the stdin of the process, and
// the client receives the remaining output.
func (a *Attachment) StaysAfterInput() bool { return a.attachedReply.Once && !a.attachedReply.TTY }

// EndInput signals that this client sends no more input.
func (a *Attachment) EndInput() {
	_, _ = a.conn.Write([]byte{inputEnded}) // fails if the shim has exited
}

// Wait returns nil when the process has exited or the attachment was closed, and otherwise the reason of the disconnection.
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

// Close detaches from the process.
func (a *Attachment) Close() { a.close() }
