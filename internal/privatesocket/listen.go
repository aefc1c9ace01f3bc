// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Package privatesocket listens on unix sockets that only their owner may open. It replaces sockets of dead processes and nothing else.
//
// Test kit: none is needed; the sockets are real.
package privatesocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// dialTimeout is how long Listen waits for a process to accept a connection on an existing socket.
const dialTimeout = time.Second

// Listen listens on a unix socket with mode 0600 at path, which may have at most about 100 bytes, and creates its directory with
// mode 0750. It replaces a socket on which no process listens. Another file, or a symbolic link, is an error. Closing the listener
// removes the socket, unless another process has replaced it.
func Listen(path string) (net.Listener, error) { return ListenAfter(path, nil) }

// ListenAfter listens like [Listen], and calls created with the temporary path of the new socket before it renames the socket to path. Nil: no call.
func ListenAfter(path string, created func(temporary string)) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := checkUnused(path); err != nil {
		return nil, err
	}
	// The socket is created in a private directory and renamed, so that it never exists with another mode.
	private, err := os.MkdirTemp(dir, ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	temporary := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if created != nil {
		created(temporary)
	}
	info, err := publishSocket(temporary, path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socketListener{UnixListener: l, path: path, info: info}, nil
}

// checkUnused returns nil if path does not exist, or if it is a socket on which no process listens.
func checkUnused(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("existing file is no socket: %s", info.Mode())
	}
	c, err := net.DialTimeout("unix", path, dialTimeout)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil: // for example a process that is too busy to accept
		return fmt.Errorf("another process may listen on it: %w", err)
	}
	return errors.Join(errors.New("another process listens on it"), c.Close())
}

// publishSocket sets the mode of a new socket file, and renames it to path. It returns the file's info.
func publishSocket(socket, path string) (fs.FileInfo, error) {
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, err
	}
	info, err := os.Lstat(socket)
	if err != nil {
		return nil, err
	}
	return info, os.Rename(socket, path)
}

// socketListener is a unix socket listener. Its method Close also removes the socket file.
type socketListener struct {
	*net.UnixListener
	path string
	info fs.FileInfo
	once sync.Once
}

// Addr returns the path of the socket.
func (l *socketListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close stops listening, and removes the socket unless another process has replaced it.
func (l *socketListener) Close() error {
	l.once.Do(func() {
		if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.info) {
			_ = os.Remove(l.path) // the next listener replaces a remaining socket
		}
	})
	return l.UnixListener.Close()
}
