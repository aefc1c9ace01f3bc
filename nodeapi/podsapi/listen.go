// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podsapi

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

// dialTimeout is how long somebody who listens on a socket already may take to accept.
const dialTimeout = time.Second

// Listen returns a listener on a unix socket at a path, with mode 0600. It makes the directory, with mode 0750, and replaces a
// socket on which nobody answers. Whatever else is there, a link too, is an error, and so is a path that is longer than the
// address of a socket may be, about 100 bytes. Close removes the socket, unless another has taken its place.
func Listen(path string) (net.Listener, error) {
	l, err := listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen on socket %s: %w", path, err)
	}
	return l, nil
}

func listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	if err := vacant(path); err != nil {
		return nil, err
	}
	// It is made where nobody else can reach it, and appears with its mode.
	private, err := os.MkdirTemp(dir, ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	made := filepath.Join(private, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	info, err := expose(made, path)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &listener{UnixListener: l, path: path, made: info}, nil
}

// vacant returns an error unless there is nothing at a path, or a socket on which nobody answers.
func vacant(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("it is there and no socket: %s", info.Mode())
	}
	c, err := net.DialTimeout("unix", path, dialTimeout)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil: // such as one who has too much to do to accept
		return fmt.Errorf("another process may listen on it: %w", err)
	}
	return errors.Join(errors.New("another process listens on it"), c.Close())
}

// expose moves a socket to where clients look for it.
func expose(made, path string) (fs.FileInfo, error) {
	if err := os.Chmod(made, 0o600); err != nil {
		return nil, err
	}
	info, err := os.Lstat(made)
	if err != nil {
		return nil, err
	}
	return info, os.Rename(made, path)
}

// listener removes its socket.
type listener struct {
	*net.UnixListener
	path string
	made fs.FileInfo
	once sync.Once
}

// Addr returns the path where clients find the socket.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close stops listening and removes the socket.
func (l *listener) Close() error {
	l.once.Do(func() {
		if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.made) {
			_ = os.Remove(l.path) // whoever comes next replaces it
		}
	})
	return l.UnixListener.Close()
}
