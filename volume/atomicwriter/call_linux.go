// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// allow fails a system call that changes something before it is made, for tests.
func (w *writer) allow(call string) error {
	if w.before == nil {
		return nil
	}
	return w.before(call)
}

func (w *writer) mkdir(dir int, name string, mode uint32) error {
	if err := w.allow("mkdirat"); err != nil {
		return err
	}
	return os.NewSyscallError("mkdirat", unix.Mkdirat(dir, name, mode))
}

// setMode gives what was made with a mode just that, if the umask has taken something of it away. A look costs less than a
// change.
func (w *writer) setMode(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&0o7777 == mode {
		return nil
	}
	if err := w.allow("fchmod"); err != nil {
		return err
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
}

func (w *writer) symlink(target, name string) error {
	if err := w.allow("symlinkat"); err != nil {
		return err
	}
	return os.NewSyscallError("symlinkat", unix.Symlinkat(target, w.dir, name))
}

func (w *writer) rename(from, to string) error {
	if err := w.allow("renameat"); err != nil {
		return err
	}
	return os.NewSyscallError("renameat", unix.Renameat(w.dir, from, w.dir, to))
}

func (w *writer) chownLink(name string, owner int64) error {
	if err := w.allow("fchownat"); err != nil {
		return err
	}
	return os.NewSyscallError("fchownat", unix.Fchownat(w.dir, name, int(owner), -1, unix.AT_SYMLINK_NOFOLLOW))
}

func (w *writer) removeLink(name string) error {
	if err := w.allow("unlinkat"); err != nil {
		return err
	}
	return os.NewSyscallError("unlinkat", unix.Unlinkat(w.dir, name, 0))
}

// removeTree removes an entry of the directory with all that is below it, but nothing that is mounted there.
func (w *writer) removeTree(name string) error {
	if err := w.allow("remove"); err != nil {
		return err
	}
	return rmtree.Remove(filepath.Join(w.path, name))
}

// writeFile writes a file that is not there.
func (w *writer) writeFile(dir int, e *entry) (err error) {
	if err := w.allow("openat"); err != nil {
		return err
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, e.name, flags, uint32(e.file.Mode))
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer func() {
		if closeErr := unix.Close(fd); err == nil {
			err = os.NewSyscallError("close", closeErr)
		}
	}()
	for data := e.file.Data; len(data) > 0; {
		if err := w.allow("write"); err != nil {
			return err
		}
		n, err := unix.Write(fd, data)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return os.NewSyscallError("write", err)
		case n <= 0:
			return os.NewSyscallError("write", io.ErrShortWrite)
		default:
			data = data[n:]
		}
	}
	if e.file.Owner != nil {
		if err := w.allow("fchown"); err != nil {
			return err
		}
		if err := unix.Fchown(fd, int(*e.file.Owner), -1); err != nil {
			return os.NewSyscallError("fchown", err)
		}
	}
	return w.setMode(fd, uint32(e.file.Mode))
}

// openDir opens a directory that is an entry of another one, and no link to one.
func openDir(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return fd, os.NewSyscallError("openat", err)
}

// readLink returns where a link leads, if it is a link whose target fits into buf.
func readLink(dir int, name string, buf []byte) (target string, ok bool) {
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil || n >= len(buf) {
		return "", false
	}
	return string(buf[:n]), true
}
