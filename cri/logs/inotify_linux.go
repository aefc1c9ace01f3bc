// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// inotify is a queue of notices of the kernel about files.
type inotify struct {
	fd   int
	file *os.File // owns fd; non-blocking, so that reads have deadlines and end with Close
	buf  [4096]byte
}

// notice is one event of the queue.
type notice struct {
	watch int
	mask  uint32
}

func openInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &inotify{fd: fd, file: os.NewFile(uintptr(fd), "inotify")}, nil
}

// add watches a path and returns the number of the watch. It must not be called after close.
func (n *inotify) add(path string, mask uint32) (int, error) {
	watch, err := unix.InotifyAddWatch(n.fd, path, mask)
	if err != nil {
		return 0, &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	return watch, nil
}

// remove ends a watch, which may have ended by itself.
func (n *inotify) remove(watch int) {
	_, _ = unix.InotifyRmWatch(n.fd, uint32(watch))
}

// read waits for notices.
func (n *inotify) read() ([]notice, error) {
	got, err := n.file.Read(n.buf[:])
	if err != nil {
		return nil, err
	}
	var found []notice
	for b := n.buf[:got]; len(b) >= unix.SizeofInotifyEvent; {
		found = append(found, notice{
			watch: int(int32(binary.NativeEndian.Uint32(b))),
			mask:  binary.NativeEndian.Uint32(b[4:]),
		})
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		b = b[min(size, len(b)):]
	}
	return found, nil
}

func (n *inotify) close() { n.file.Close() }
