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

// The requests that a shim takes, one on a connection.
const (
	opSignal = "signal" // to the process group
	opKill   = "kill"   // SIGKILL to the process and all its descendants
	opReopen = "reopen" // the log file
	opExec   = "exec"   // run a command; closing the connection kills it
)

type request struct {
	Op     string
	Signal int      // of opSignal
	Argv   []string // of opExec, which comes with descriptors for stdout and stderr
}

type reply struct {
	Error string
	Code  int // of opExec
}

// callTimeout bounds requests that a shim answers at once.
const callTimeout = 10 * time.Second

// ErrEnded says that the process has ended and its shim takes no requests any more.
var ErrEnded = errors.New("the container has exited")

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
	if err != nil && ctx.Err() != nil {
		return reply{}, context.Cause(ctx)
	}
	if err != nil && !scarce(err) {
		// A shim closes its socket only by ending.
		ending, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		if h.Wait(ending) == nil {
			return reply{}, ErrEnded
		}
	}
	if err != nil {
		return reply{}, fmt.Errorf("%s through shim: %w", r.Op, err)
	}
	if answer.Error != "" {
		return reply{}, errors.New(answer.Error)
	}
	return answer, nil
}

func (h *Handle) exchange(ctx context.Context, r request, fds []int) (reply, error) {
	path, done, err := socketPath(h.dir)
	if err != nil {
		return reply{}, err
	}
	defer done()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return reply{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	data, err := json.Marshal(r)
	if err != nil {
		return reply{}, err
	}
	// Descriptors travel with the first byte: a longer message may be split, and they would come twice.
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix(data[:1], unix.UnixRights(fds...), nil); err != nil {
		return reply{}, err
	}
	if _, err := conn.Write(data[1:]); err != nil {
		return reply{}, err
	}
	var answer reply
	return answer, json.NewDecoder(conn).Decode(&answer)
}

// receive reads a request and the descriptors that come with it.
func receive(conn *net.UnixConn) (request, []*os.File, error) {
	first, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(2*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(first, oob)
	if err != nil {
		return request{}, nil, err
	}
	var files []*os.File
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return request{}, nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return request{}, files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "descriptor"))
		}
	}
	var r request
	err = json.NewDecoder(io.MultiReader(bytes.NewReader(first[:n]), conn)).Decode(&r)
	return r, files, err
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
