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

// killedTime is how long a shim is waited for to say that it has killed a command whose client left.
const killedTime = 3 * time.Second

// Run runs a command beside the process, on descriptors that it closes: stdin, stdout and stderr, or with tty the slave of
// one terminal. When ctx ends, the command is killed with all that it has started. A shim of an older agent is [ErrOldShim].
func (h *Handle) Run(ctx context.Context, argv []string, tty bool, fds []int) (int, error) {
	r := request{Op: opRun, Version: protocol, Argv: argv, TTY: tty}
	conn, err := h.send(ctx, r, fds)
	closeAll(fds)
	if err != nil {
		return 0, h.explain(ctx, r, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = conn.CloseWrite() // the client leaves
		_ = conn.SetReadDeadline(time.Now().Add(killedTime))
	})
	defer stop()
	var answer reply
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return 0, h.explain(ctx, r, err)
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if answer.Error == "" {
		// Without that the shim takes the client for gone, and kills what the command has left. It fails where the shim has not
		// waited that long for a slow client, or has ended: the result is here all the same.
		_, _ = conn.Write([]byte{resultTaken})
	}
	return answer.Code, answer.err(r)
}

// Attachment is a connection to the process of a shim. Its methods may be called from many goroutines.
type Attachment struct {
	handle *Handle
	req    request
	conn   *net.UnixConn
	rest   *json.Decoder
	file   *os.File // the input, the terminal, or both
	first  reply
	close  func()
	closed chan struct{}
}

// AttachOptions select the files that a client gets from [Handle.Attach].
type AttachOptions struct {
	Input bool // the input of the process
	Sizes bool // its terminal, where it has one
}

// Attach has the output of the process written to descriptors, which it closes: stdout and stderr, -1 for one that is not
// wanted. They do not block, and a client that lets them fill up is dropped. ctx bounds the call alone.
func (h *Handle) Attach(ctx context.Context, o AttachOptions, fds [2]int) (*Attachment, error) {
	r := request{Op: opAttach, Version: protocol, Stdin: o.Input, Terminal: o.Sizes, Stdout: fds[0] >= 0, Stderr: fds[1] >= 0}
	var wanted []int
	for _, fd := range fds {
		if fd >= 0 {
			wanted = append(wanted, fd)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := h.send(ctx, r, wanted)
	closeAll(wanted)
	if err != nil {
		return nil, h.explain(ctx, r, err)
	}
	a, err := h.attached(ctx, r, conn)
	if err != nil {
		conn.Close()
	}
	return a, err
}

// attached reads the first answer to an attach.
func (h *Handle) attached(ctx context.Context, r request, conn *net.UnixConn) (*Attachment, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
	defer stop()
	var answer reply
	fds, rest, err := readWith(conn, &answer)
	if err == nil {
		if err = answer.err(r); err == nil && len(fds) > 1 {
			err = errors.New("attach through shim: more than one descriptor came")
		}
	} else {
		err = h.explain(ctx, r, err)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	a := &Attachment{handle: h, req: r, conn: conn, rest: rest, first: answer, closed: make(chan struct{})}
	a.close = sync.OnceFunc(func() {
		close(a.closed)
		conn.Close()
	})
	if len(fds) == 1 {
		a.file = os.NewFile(uintptr(fds[0]), "input")
	}
	return a, nil
}

// Input returns what the process reads from, nil where it reads nothing or the attachment has no input. The caller closes it.
func (a *Attachment) Input() *os.File {
	if !a.first.Input {
		return nil
	}
	return a.file
}

// Terminal returns the master of the terminal of the process, nil where it has none or the attachment has neither input nor
// sizes. It may be the same file as Input. The caller closes it.
func (a *Attachment) Terminal() *os.File {
	if !a.first.TTY {
		return nil
	}
	return a.file
}

// Outlasts reports whether the client stays after the end of its input, to see what the process makes of that: its input ends too.
func (a *Attachment) Outlasts() bool { return a.first.Once && !a.first.TTY }

// EndInput says that no more input comes from this client.
func (a *Attachment) EndInput() {
	_, _ = a.conn.Write([]byte{inputEnded}) // it fails where the shim has ended
}

// Wait returns nil when the process has ended or the attachment was closed, and otherwise why it was ended.
func (a *Attachment) Wait(ctx context.Context) error {
	var answer reply
	err := a.rest.Decode(&answer)
	select {
	case <-a.closed:
		return nil
	default:
	}
	if err == nil {
		return answer.err(a.req)
	}
	return a.handle.explain(ctx, a.req, err)
}

// Close leaves the process.
func (a *Attachment) Close() { a.close() }
