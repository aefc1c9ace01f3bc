// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package capture collects the output of a command through a pipe. It does not wait for background processes that keep the pipe
// open.
package capture

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Output collects the output of a command from one pipe. [Start] creates it.
type Output struct {
	from, to  *os.File
	limit     int
	drainWait time.Duration
	kept      bytes.Buffer
}

// Start creates a pipe for the output of a command, and starts a goroutine of readers that reads it. The goroutine keeps the
// first bytes, up to limit. It returns at the end of the output, or drainWait after CloseWriter.
func Start(readers *sync.WaitGroup, limit int, drainWait time.Duration) (*Output, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	// Only the reading end is non-blocking: a command expects a blocking descriptor.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(ends[0]), unix.Close(ends[1]))
	}
	o := &Output{from: os.NewFile(uintptr(ends[0]), "output"), to: os.NewFile(uintptr(ends[1]), "output"), limit: limit, drainWait: drainWait}
	readers.Go(func() {
		defer o.from.Close()
		o.readPipe()
	})
	return o, nil
}

// readPipe reads until all writers have closed the pipe, or until the deadline that CloseWriter sets.
func (o *Output) readPipe() {
	// Output beyond the limit is read too, so that the command does not block.
	_, err := io.CopyN(&o.kept, o.from, int64(o.limit))
	if err == nil {
		_, err = io.Copy(io.Discard, o.from)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		o.readBuffered()
	}
}

// readBuffered reads the output that is left in the pipe at the deadline. On a busy machine, the command may have written it
// before the deadline.
func (o *Output) readBuffered() {
	conn, err := o.from.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		there, _ := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		buf := make([]byte, min(there, o.limit-o.kept.Len()))
		n, err := unix.Read(int(fd), buf)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Read(int(fd), buf)
		}
		o.kept.Write(buf[:max(n, 0)])
	})
}

// Writer returns the end of the pipe to which the command writes. Writes to it block while the pipe is full.
func (o *Output) Writer() *os.File { return o.to }

// Bytes returns the kept output. The caller must first wait for the WaitGroup passed to [Start].
func (o *Output) Bytes() []byte { return o.kept.Bytes() }

// CloseWriter closes the write end of the pipe in this process. If background processes of the command keep the pipe open,
// reading stops after the drainWait passed to [Start].
func (o *Output) CloseWriter() {
	o.to.Close()
	_ = o.from.SetReadDeadline(time.Now().Add(o.drainWait))
}
