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

// checkFault returns the error that a test injects for the system call with this name. Outside tests it returns nil.
func (w *writer) checkFault(call string) error {
	if w.before == nil {
		return nil
	}
	return w.before(call)
}

func (w *writer) makeDir(dir int, name string, mode uint32) error {
	if err := w.checkFault("mkdirat"); err != nil {
		return err
	}
	return os.NewSyscallError("mkdirat", unix.Mkdirat(dir, name, mode))
}

// setMode sets the mode of an open file or directory that was created with this mode, if the umask has changed it.
func (w *writer) setMode(fd int, mode uint32) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	if st.Mode&0o7777 == mode {
		return nil
	}
	if err := w.checkFault("fchmod"); err != nil {
		return err
	}
	return os.NewSyscallError("fchmod", unix.Fchmod(fd, mode))
}

func (w *writer) createLink(target, name string) error {
	if err := w.checkFault("symlinkat"); err != nil {
		return err
	}
	return os.NewSyscallError("symlinkat", unix.Symlinkat(target, w.dir, name))
}

func (w *writer) renameEntry(from, to string) error {
	if err := w.checkFault("renameat"); err != nil {
		return err
	}
	return os.NewSyscallError("renameat", unix.Renameat(w.dir, from, w.dir, to))
}

func (w *writer) chownLink(name string, owner int64) error {
	if err := w.checkFault("fchownat"); err != nil {
		return err
	}
	return os.NewSyscallError("fchownat", unix.Fchownat(w.dir, name, int(owner), -1, unix.AT_SYMLINK_NOFOLLOW))
}

func (w *writer) removeLink(name string) error {
	if err := w.checkFault("unlinkat"); err != nil {
		return err
	}
	return os.NewSyscallError("unlinkat", unix.Unlinkat(w.dir, name, 0))
}

// removeTree removes an entry of the directory with all its contents. It deletes no files of a file system that is mounted
// inside.
func (w *writer) removeTree(name string) error {
	if err := w.checkFault("remove"); err != nil {
		return err
	}
	return rmtree.Remove(filepath.Join(w.path, name))
}

// writeFile creates a file in the directory with descriptor dir, and writes the contents, owner and mode of item. The file
// must not exist.
func (w *writer) writeFile(dir int, item *entry) (err error) {
	if err := w.checkFault("openat"); err != nil {
		return err
	}
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, item.name, flags, uint32(item.file.Mode))
	if err != nil {
		return os.NewSyscallError("openat", err)
	}
	defer func() {
		if closeErr := unix.Close(fd); err == nil {
			err = os.NewSyscallError("close", closeErr)
		}
	}()
	for data := item.file.Data; len(data) > 0; {
		if err := w.checkFault("write"); err != nil {
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
	if item.file.Owner != nil {
		if err := w.checkFault("fchown"); err != nil {
			return err
		}
		if err := unix.Fchown(fd, int(*item.file.Owner), -1); err != nil {
			return os.NewSyscallError("fchown", err)
		}
	}
	return w.setMode(fd, uint32(item.file.Mode))
}

// openDir opens a subdirectory of the directory with descriptor dir. It returns an error if the name is a symbolic link.
func openDir(dir int, name string) (int, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	return fd, os.NewSyscallError("openat", err)
}

// readLink returns the target of a symbolic link in the directory dir, and false if there is none or it does not fit into buf.
func readLink(dir int, name string, buf []byte) (target string, ok bool) {
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil || n >= len(buf) {
		return "", false
	}
	return string(buf[:n]), true
}
