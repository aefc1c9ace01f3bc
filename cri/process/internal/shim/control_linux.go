// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// protocol is the version of the requests of this shim and this agent. A shim accepts requests of all earlier versions. A shim of
// version 1 sends no version in its replies.
const protocol = 2

// The requests of a shim, one per connection.
const (
	opSignal = "signal" // send a signal to the process group
	opKill   = "kill"   // send SIGKILL to the process and all its descendants
	opReopen = "reopen" // reopen the log file
	opExec   = "exec"   // run a command; closing the connection kills it
	opRun    = "run"    // since version 2: like exec, with stdin or on a terminal; also kills child processes
	opAttach = "attach" // since version 2: copy output until the connection is closed or the container has exited
)

// request is a request to a shim, sent as JSON with file descriptors.
type request struct {
	Op      string
	Version int      // protocol version that the request requires; 0 means 1
	Signal  int      // for opSignal
	Argv    []string // for opExec, sent with descriptors of stdout and stderr, and for opRun
	// For opRun: whether the command runs on a terminal. If set, the descriptor of the terminal is sent, otherwise three
	// descriptors: stdin, stdout and stderr.
	TTY bool
	// For opAttach: the requested streams. Descriptors of the requested stdout and stderr are sent.
	Stdin, Stdout, Stderr bool
	Terminal              bool // for opAttach: request the terminal, if there is one, to set its size
}

// reply is the reply to a request. An attach request has two replies: the first when the client is attached, with the descriptor
// of the requested input, and the second when it is detached.
type reply struct {
	Version int
	Error   string
	Code    int  // exit code, for opExec and opRun
	Input   bool // for opAttach: the sent descriptor is the input
	TTY     bool // for opAttach: the sent descriptor is the terminal, which may also be the input
	Once    bool // for opAttach: the input of the process ends with that of its first client
}

// callTimeout is the time limit of requests that a shim handles without waiting.
const callTimeout = 10 * time.Second

// ErrEnded means that the process has exited and its shim accepts no more requests.
var ErrEnded = errors.New("the container has exited")

// ErrOldShim means that an agent with an earlier protocol started the shim.
var ErrOldShim = fmt.Errorf("the shim of this container was started by an older agent and cannot do that until the container is restarted: %w",
	errors.ErrUnsupported)

// Signal sends a signal to the process group of the container's process, and succeeds if the process has exited. Until ctx ends,
// it waits for the shim. It never sends the signal twice.
func (h *Handle) Signal(ctx context.Context, sig int) error {
	_, err := h.sendRequest(ctx, request{Op: opSignal, Signal: sig})
	return endedIsSuccess(err)
}

// Kill makes the shim kill the container's process and all its descendants. It does not wait until they have exited.
func (h *Handle) Kill(ctx context.Context) error {
	return endedIsSuccess(h.callWithTimeout(ctx, request{Op: opKill}))
}

func endedIsSuccess(err error) error {
	if errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

// ReopenLog makes the shim open a new log file, and returns when the shim writes to it.
func (h *Handle) ReopenLog(ctx context.Context) error {
	return h.callWithTimeout(ctx, request{Op: opReopen})
}

func (h *Handle) callWithTimeout(ctx context.Context, req request) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := h.sendRequest(ctx, req)
	return err
}

// Exec runs a command in the environment of the container, with output to stdout and stderr, and returns the exit code of
// the command. When ctx ends, the command is killed.
func (h *Handle) Exec(ctx context.Context, argv []string, stdout, stderr *os.File) (int, error) {
	answer, err := h.sendRequest(ctx, request{Op: opExec, Argv: argv}, int(stdout.Fd()), int(stderr.Fd()))
	return answer.Code, err
}

func (h *Handle) sendRequest(ctx context.Context, req request, fds ...int) (reply, error) {
	answer, err := h.exchangeMessages(ctx, req, fds)
	if err != nil {
		return reply{}, h.explainError(ctx, req, err)
	}
	return answer, answer.replyError(req)
}

// explainError returns the cause of a failed request to the shim: that of ctx, ErrEnded, or err with the kind of request.
func (h *Handle) explainError(ctx context.Context, req request, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !isResourceShortage(err) {
		// A shim closes its socket only when it exits.
		ending, cancel := context.WithTimeout(ctx, killWait)
		defer cancel()
		if h.Wait(ending) == nil {
			return ErrEnded
		}
	}
	return fmt.Errorf("%s through shim: %w", req.Op, err)
}

// replyError returns the error in the shim's reply, or nil. If the shim does not support the request, it wraps ErrOldShim.
func (a reply) replyError(req request) error {
	switch {
	case a.Error == "":
		return nil
	case a.Version < req.Version:
		return fmt.Errorf("%w (protocol %d; %s takes %d)", ErrOldShim, max(1, a.Version), req.Op, req.Version)
	case a.Error == ErrEnded.Error():
		return ErrEnded
	}
	return errors.New(a.Error)
}

func (h *Handle) exchangeMessages(ctx context.Context, req request, fds []int) (reply, error) {
	conn, err := h.openRequest(ctx, req, fds)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	var answer reply
	return answer, json.NewDecoder(conn).Decode(&answer)
}

// openRequest connects to the shim and sends a request together with the descriptors. It returns the connection, from which
// the caller reads the reply.
func (h *Handle) openRequest(ctx context.Context, req request, fds []int) (*net.UnixConn, error) {
	path, done, err := socketPath(h.dir)
	if err != nil {
		return nil, err
	}
	defer done()
	var dialer net.Dialer
	dialed, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn := dialed.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err := writeMessage(conn, req, fds); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// writeMessage writes a message as JSON, and sends the descriptors with it.
func writeMessage(conn *net.UnixConn, message any, fds []int) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	// Descriptors are sent with the first byte: a longer message may be split, and they would be sent twice.
	if _, _, err := conn.WriteMsgUnix(data[:1], unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	_, err = conn.Write(data[1:])
	return err
}

const (
	maxDescriptors = 3        // maximum number of descriptors per message
	maxMessage     = 16 << 20 // maximum size of a message in bytes; longer than any command that the kernel accepts
)

// readMessage reads a JSON message and the descriptors that were sent with it, which the caller closes. rest reads further
// messages.
func readMessage(conn *net.UnixConn, message any) (fds []int, rest *json.Decoder, err error) {
	first, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(maxDescriptors*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(first, oob)
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, nil, err
	}
	for _, m := range messages {
		more, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, nil, err
		}
		fds = append(fds, more...)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return fds, nil, fmt.Errorf("more than %d descriptors came with a message", maxDescriptors)
	}
	rest = json.NewDecoder(io.LimitReader(io.MultiReader(bytes.NewReader(first[:n]), conn), maxMessage))
	return fds, rest, rest.Decode(message)
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// socketPath returns a path of the shim's socket that is valid until the caller calls done.
func socketPath(dir string) (path string, done func(), err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	// a unix socket address has at most 107 bytes
	return filepath.Join("/proc/self/fd", fmt.Sprint(fd), sockFile), func() { unix.Close(fd) }, nil
}
