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

// protocol is the version of the requests that this shim takes, and that this agent makes. A shim takes those of all earlier
// versions; one of version 1 says none in its answers.
const protocol = 2

// The requests that a shim takes, one on a connection.
const (
	opSignal = "signal" // to the process group
	opKill   = "kill"   // SIGKILL to the process and all its descendants
	opReopen = "reopen" // the log file
	opExec   = "exec"   // run a command; closing the connection kills it
	opRun    = "run"    // since 2: the same with stdin, or on a terminal, and with all that it has started
	opAttach = "attach" // since 2: pass output on until the connection is closed or the container has ended
)

type request struct {
	Op      string
	Version int      // that it takes to understand it; 0 is 1
	Signal  int      // of opSignal
	Argv    []string // of opExec, which comes with descriptors for stdout and stderr, and of opRun
	// TTY is of opRun: it comes with a descriptor of a terminal, otherwise with three for stdin, stdout and stderr.
	TTY bool
	// Of opAttach, which comes with descriptors for those of stdout and stderr that are wanted.
	Stdin, Stdout, Stderr bool
	Terminal              bool // of opAttach: the terminal is wanted where there is one, to set its size
}

// reply is the answer to a request. An attach has two: that it is attached, with a descriptor of the input where there is
// one that was asked for, and the end.
type reply struct {
	Version int
	Error   string
	Code    int  // of opExec and opRun
	Input   bool // of opAttach: the descriptor that comes is the input
	TTY     bool // of opAttach: the descriptor that comes is the terminal, which may be the input too
	Once    bool // of opAttach: the input of the process ends with that of its first client
}

// callTimeout bounds requests that a shim answers at once.
const callTimeout = 10 * time.Second

// ErrEnded says that the process has ended and its shim takes no requests any more.
var ErrEnded = errors.New("the container has exited")

// ErrOldShim says that a shim was started by an agent that knew fewer requests.
var ErrOldShim = fmt.Errorf("the shim of this container was started by an older agent and cannot do that until the container is restarted: %w",
	errors.ErrUnsupported)

// Signal sends a signal to the process group. A process that has ended is success. A shim that does not answer is waited
// for until ctx ends: it takes the signal when it comes round, and must not find it twice.
func (h *Handle) Signal(ctx context.Context, sig int) error {
	_, err := h.call(ctx, request{Op: opSignal, Signal: sig})
	return endedIsSuccess(err)
}

// Kill kills the process and all its descendants; it does not wait for their end.
func (h *Handle) Kill(ctx context.Context) error {
	return endedIsSuccess(h.order(ctx, request{Op: opKill}))
}

func endedIsSuccess(err error) error {
	if errors.Is(err, ErrEnded) {
		return nil
	}
	return err
}

// ReopenLog returns when the shim writes to a new log file.
func (h *Handle) ReopenLog(ctx context.Context) error { return h.order(ctx, request{Op: opReopen}) }

func (h *Handle) order(ctx context.Context, r request) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := h.call(ctx, r)
	return err
}

// Exec runs a command beside the process and returns its exit code. When ctx ends, the command is killed.
func (h *Handle) Exec(ctx context.Context, argv []string, stdout, stderr *os.File) (int, error) {
	answer, err := h.call(ctx, request{Op: opExec, Argv: argv}, int(stdout.Fd()), int(stderr.Fd()))
	return answer.Code, err
}

func (h *Handle) call(ctx context.Context, r request, fds ...int) (reply, error) {
	answer, err := h.exchange(ctx, r, fds)
	if err != nil {
		return reply{}, h.explain(ctx, r, err)
	}
	return answer, answer.err(r)
}

// explain returns what an error of the connection means.
func (h *Handle) explain(ctx context.Context, r request, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !scarce(err) {
		// A shim closes its socket only by ending.
		ending, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		if h.Wait(ending) == nil {
			return ErrEnded
		}
	}
	return fmt.Errorf("%s through shim: %w", r.Op, err)
}

// err returns the error that an answer tells.
func (a reply) err(r request) error {
	switch {
	case a.Error == "":
		return nil
	case a.Version < r.Version:
		return fmt.Errorf("%w (protocol %d; %s takes %d)", ErrOldShim, max(1, a.Version), r.Op, r.Version)
	case a.Error == ErrEnded.Error():
		return ErrEnded
	}
	return errors.New(a.Error)
}

func (h *Handle) exchange(ctx context.Context, r request, fds []int) (reply, error) {
	conn, err := h.send(ctx, r, fds)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	var answer reply
	return answer, json.NewDecoder(conn).Decode(&answer)
}

// send connects to the shim and makes a request.
func (h *Handle) send(ctx context.Context, r request, fds []int) (*net.UnixConn, error) {
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
	if err := writeWith(conn, r, fds); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// writeWith writes a message with descriptors.
func writeWith(conn *net.UnixConn, message any, fds []int) error {
	data, err := json.Marshal(message)
	if err != nil {
		return err
	}
	// Descriptors travel with the first byte: a longer message may be split, and they would come twice.
	if _, _, err := conn.WriteMsgUnix(data[:1], unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	_, err = conn.Write(data[1:])
	return err
}

const (
	maxDescriptors = 3        // that come with a message
	maxMessage     = 16 << 20 // bytes of a message; the kernel takes no command that is nearly as long
)

// readWith reads a message and the descriptors that come with it, which the caller closes, after an error too. More of the
// connection may have been read than the message: the decoder has it.
func readWith(conn *net.UnixConn, message any) (fds []int, rest *json.Decoder, err error) {
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

// socketPath returns a path of the socket that is short enough for any directory: the address of a unix socket
// has room for 107 bytes. It is valid until done is called.
func socketPath(dir string) (path string, done func(), err error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return filepath.Join("/proc/self/fd", fmt.Sprint(fd), sockFile), func() { unix.Close(fd) }, nil
}
