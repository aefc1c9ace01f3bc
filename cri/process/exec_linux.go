// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
)

const (
	// outputLimit is what is kept of each stream of a command, as in containerd.
	outputLimit = 16 << 20
	// outputTime is for output that something the command left behind still holds open. What the command itself has
	// written is there at once; and this must fit into the second that a probe has.
	outputTime = 200 * time.Millisecond
)

// ExecSync runs a command beside the process of a container, with its environment, working directory and user.
// What the command leaves running ends with the container.
func (r *Runtime) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	result, err := r.execSync(ctx, id, cmd, timeout)
	return result, fail("ExecSync", id, err)
}

func (r *Runtime) execSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (cri.ExecResult, error) {
	handle, err := r.running(id)
	if err != nil {
		return cri.ExecResult{}, err
	}
	if len(cmd) == 0 {
		return cri.ExecResult{}, errors.New("no command")
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, seconds(timeout))
		defer cancel()
	}
	var readers sync.WaitGroup
	stdout, err := capture(&readers)
	if err != nil {
		return cri.ExecResult{}, err
	}
	stderr, err := capture(&readers)
	if err != nil {
		stdout.finish()
		readers.Wait()
		return cri.ExecResult{}, err
	}
	exitCode, err := handle.Exec(ctx, cmd, stdout.to, stderr.to)
	stdout.finish()
	stderr.finish()
	readers.Wait()
	if err != nil {
		return cri.ExecResult{}, err
	}
	return cri.ExecResult{Stdout: stdout.kept.Bytes(), Stderr: stderr.kept.Bytes(), ExitCode: exitCode}, nil
}

// output collects what comes through a pipe.
type output struct {
	from, to *os.File
	kept     bytes.Buffer
}

// capture makes a pipe and reads it to its end, a goroutine of readers.
func capture(readers *sync.WaitGroup) (*output, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	// Only this end: a command expects descriptors that block.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(ends[0]), unix.Close(ends[1]))
	}
	o := &output{from: os.NewFile(uintptr(ends[0]), "output"), to: os.NewFile(uintptr(ends[1]), "output")}
	readers.Go(func() {
		defer o.from.Close()
		o.read()
	})
	return o, nil
}

// read reads until the end, or until the time of finish is up.
func (o *output) read() {
	// The command must not block on what is beyond the limit, so all is read.
	_, err := io.CopyN(&o.kept, o.from, outputLimit)
	if err == nil {
		_, err = io.Copy(io.Discard, o.from)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		o.rest()
	}
}

// rest takes what is there: on a busy machine the time may be up before what the command itself has written was read.
func (o *output) rest() {
	conn, err := o.from.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		there, _ := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		buf := make([]byte, min(there, outputLimit-o.kept.Len()))
		n, err := unix.Read(int(fd), buf)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Read(int(fd), buf)
		}
		o.kept.Write(buf[:max(n, 0)])
	})
}

// finish lets go of the writing end, and ends the reading soon even if the command left something behind.
func (o *output) finish() {
	o.to.Close()
	_ = o.from.SetReadDeadline(time.Now().Add(outputTime))
}

// ReopenContainerLog returns when the container writes to a new log file.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	handle, err := r.running(id)
	if err == nil {
		err = handle.ReopenLog(ctx)
	}
	return fail("ReopenContainerLog", id, err)
}

// running returns the shim of a container that runs.
func (r *Runtime) running(id string) (*shim.Handle, error) {
	c, err := r.find(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.settle(c); err != nil {
		return nil, err
	}
	if c.shim == nil {
		return nil, errors.New("container is " + c.State.String() + ", not running")
	}
	return c.shim, nil
}
