// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/dirent"
)

// hierarchy is one mounted cgroup tree below the directory dir. Names are resolved with openat2 below fd, without symbolic
// links and other mounts, so that no name reaches a file outside.
type hierarchy struct {
	dir         string // absolute path of the root
	fd          int    // O_PATH descriptor of the root
	controllers []string
}

func openHierarchy(dir string, controllers []string) (*hierarchy, error) {
	fd, err := retryInterrupted(func() (int, error) {
		return unix.Openat2(unix.AT_FDCWD, dir, &unix.OpenHow{
			Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_MAGICLINKS,
		})
	})
	if errors.Is(err, unix.ENOSYS) {
		return nil, fmt.Errorf("openat2: %w: the driver needs Linux 5.6", err)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	return &hierarchy{dir: dir, fd: fd, controllers: controllers}, nil
}

func (h *hierarchy) close() error { return unix.Close(h.fd) }

// hasController reports whether the hierarchy has this controller, for example "memory".
func (h *hierarchy) hasController(controller string) bool {
	return slices.Contains(h.controllers, controller)
}

// absolutePath returns the absolute path of the directory dir, which is relative to the top directory of the hierarchy, h.dir.
func (h *hierarchy) absolutePath(dir string) string { return path.Join(h.dir, dir) }

func (h *hierarchy) openAt(name string, flags uint64) (int, error) {
	if name == "" {
		name = "."
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	return retryInterrupted(func() (int, error) { return unix.Openat2(h.fd, name, &how) })
}

// cgroupExists reports whether the hierarchy has the cgroup dir, a path relative to h.dir.
func (h *hierarchy) cgroupExists(dir string) bool { return h.canOpen(dir, unix.O_DIRECTORY) }

// fileExists reports whether cgroup dir has the named file.
func (h *hierarchy) fileExists(dir, file string) bool { return h.canOpen(joinDir(dir, file), 0) }

func (h *hierarchy) canOpen(name string, flags uint64) bool {
	fd, err := h.openAt(name, unix.O_PATH|flags)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// mkdir creates the directory of one cgroup. Its parent must exist. No check for symbolic links is necessary, because a
// cgroup file system has none.
func (h *hierarchy) mkdir(dir string) error { return unix.Mkdirat(h.fd, dir, 0o755) }

// rmdir removes the directory of one cgroup. If there is no such directory, it returns nil.
func (h *hierarchy) rmdir(dir string) error {
	err := unix.Unlinkat(h.fd, dir, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EROFS) && !h.cgroupExists(dir) { // on a read-only mount the kernel does not check whether the directory exists
		return nil
	}
	return ignoreAbsent(err)
}

// writeFile writes text to a file of a cgroup. It uses a single system call, because the kernel parses each write on its
// own.
func (h *hierarchy) writeFile(dir, file, text string, flags uint64) error {
	fd, err := h.openAt(joinDir(dir, file), unix.O_WRONLY|flags)
	if err != nil {
		return err
	}
	_, err = retryInterrupted(func() (int, error) { return unix.Write(fd, []byte(text)) })
	unix.Close(fd)
	return err
}

// readFile appends the content of a file of a cgroup to buf. It allocates no memory if buf has enough room.
func (h *hierarchy) readFile(buf []byte, dir, file string) ([]byte, error) {
	fd, err := h.openAt(joinDir(dir, file), unix.O_RDONLY)
	if err != nil {
		return buf, err
	}
	defer unix.Close(fd)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(4096, len(buf)))
		}
		n, err := retryInterrupted(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return buf, err
		}
		full := len(buf)+n == cap(buf)
		buf = buf[:len(buf)+n]
		// A short read below the kernel's page size is the end of the file.
		if n == 0 || n < 2048 && !full {
			return buf, nil
		}
	}
}

// listChildren returns the names of the cgroups directly below a cgroup.
func (h *hierarchy) listChildren(dir string) (names []string, err error) {
	fd, err := h.openAt(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for n, buf := 1, make([]byte, 4<<10); n > 0 && err == nil; {
		n, err = dirent.Next(fd, buf, func(name []byte, t dirent.Type) {
			// the type of an entry is enough: most entries are files
			if t == dirent.Directory {
				names = append(names, string(name))
			}
		})
	}
	return names, err
}

// visitDescendants calls visit for a cgroup and all cgroups below, children first. visit must use the hierarchy that it
// receives.
func (h *hierarchy) visitDescendants(dir string, visit func(h *hierarchy, dir string) error) error {
	below, prefix := h, dir
	// The paths below would be too long for a system call, so continue relative to an open directory.
	if len(dir) > unix.PathMax/4 {
		fd, err := h.openAt(dir, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return ignoreAbsent(err) // removed meanwhile
		}
		below, prefix = &hierarchy{dir: h.absolutePath(dir), fd: fd, controllers: h.controllers}, ""
		defer below.close()
	}
	names, err := below.listChildren(prefix)
	if err != nil {
		return ignoreAbsent(err)
	}
	var first error
	for _, name := range names {
		if err := below.visitDescendants(joinDir(prefix, name), visit); err != nil && first == nil {
			first = err
		}
	}
	if err := visit(h, dir); err != nil && first == nil {
		first = err
	}
	return first
}

// retryInterrupted repeats a system call while it returns EINTR. The Go runtime sends signals to its own threads, which
// interrupt system calls.
func retryInterrupted(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// isAbsent reports whether err means that a file or directory does not exist, or was removed while it was open (ENODEV).
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// ignoreAbsent returns nil if err means that a file or directory does not exist. Otherwise it returns err.
func ignoreAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}
