// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package capture keeps what a command writes, whether or not it leaves behind something that holds its pipe.
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

// Output collects what comes through a pipe. Get one from [Start].
type Output struct {
	from, to *os.File
	limit    int
	late     time.Duration
	kept     bytes.Buffer
}

// Start makes a pipe, of which a goroutine of readers keeps as many bytes as the limit says. It reads to the end, and for the
// time late after Finish at most.
func Start(readers *sync.WaitGroup, limit int, late time.Duration) (*Output, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	// Only this end: a command expects descriptors that block.
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(ends[0]), unix.Close(ends[1]))
	}
	o := &Output{from: os.NewFile(uintptr(ends[0]), "output"), to: os.NewFile(uintptr(ends[1]), "output"), limit: limit, late: late}
	readers.Go(func() {
		defer o.from.Close()
		o.read()
	})
	return o, nil
}

// read reads until the end, or until the time of Finish is up.
func (o *Output) read() {
	// The command must not block on what is beyond the limit, so all is read.
	_, err := io.CopyN(&o.kept, o.from, int64(o.limit))
	if err == nil {
		_, err = io.Copy(io.Discard, o.from)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		o.rest()
	}
}

// rest takes what is there: on a busy machine the time may be up before what the command itself has written was read.
func (o *Output) rest() {
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

// Writer is the end for a command, which blocks.
func (o *Output) Writer() *os.File { return o.to }

// Bytes are what was kept, once the readers have ended.
func (o *Output) Bytes() []byte { return o.kept.Bytes() }

// Finish lets go of the writing end, and ends the reading soon even if the command left something behind.
func (o *Output) Finish() {
	o.to.Close()
	_ = o.from.SetReadDeadline(time.Now().Add(o.late))
}
