// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"encoding/binary"
	"os"

	"golang.org/x/sys/unix"
)

// inotifyQueue is an inotify instance of the kernel.
type inotifyQueue struct {
	fd   int
	file *os.File // owns fd; non-blocking, so that reads have deadlines and end at Close
	buf  [4096]byte
}

// inotifyEvent is one event of the queue.
type inotifyEvent struct {
	watch int
	mask  uint32
}

func openInotify() (*inotifyQueue, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	return &inotifyQueue{fd: fd, file: os.NewFile(uintptr(fd), "inotify")}, nil
}

// addWatch watches a file or directory for these events, and returns the watch descriptor. It must not be called after
// closeFile.
func (n *inotifyQueue) addWatch(path string, mask uint32) (int, error) {
	watch, err := unix.InotifyAddWatch(n.fd, path, mask)
	if err != nil {
		return 0, &os.PathError{Op: "inotify_add_watch", Path: path, Err: err}
	}
	return watch, nil
}

// removeWatch removes the watch with this descriptor, unless the kernel has already removed it.
func (n *inotifyQueue) removeWatch(watch int) {
	_, _ = unix.InotifyRmWatch(n.fd, uint32(watch))
}

// readEvents waits for inotify events and returns them.
func (n *inotifyQueue) readEvents() ([]inotifyEvent, error) {
	got, err := n.file.Read(n.buf[:])
	if err != nil {
		return nil, err
	}
	var found []inotifyEvent
	for b := n.buf[:got]; len(b) >= unix.SizeofInotifyEvent; {
		found = append(found, inotifyEvent{
			watch: int(int32(binary.NativeEndian.Uint32(b))),
			mask:  binary.NativeEndian.Uint32(b[4:]),
		})
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
		b = b[min(size, len(b)):]
	}
	return found, nil
}

func (n *inotifyQueue) closeFile() { n.file.Close() }
