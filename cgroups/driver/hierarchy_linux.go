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

// hierarchy is one tree of cgroups from the root of the driver down. Every name is resolved from a handle on that
// root, beneath it, on its file system and through no symbolic link: what is not a cgroup below the root cannot be
// reached, whatever the name is.
type hierarchy struct {
	dir         string // absolute, for messages and for what takes no handle
	fd          int
	controllers []string
}

func openHierarchy(dir string, controllers []string) (*hierarchy, error) {
	fd, err := retry(func() (int, error) {
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

// has reports whether the hierarchy is that of a controller.
func (h *hierarchy) has(controller string) bool { return slices.Contains(h.controllers, controller) }

// path is absolute.
func (h *hierarchy) path(dir string) string { return path.Join(h.dir, dir) }

func (h *hierarchy) open(name string, flags uint64) (int, error) {
	if name == "" {
		name = "."
	}
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	return retry(func() (int, error) { return unix.Openat2(h.fd, name, &how) })
}

// exists reports whether there is a cgroup.
func (h *hierarchy) exists(dir string) bool { return h.there(dir, unix.O_DIRECTORY) }

// existsFile reports whether a cgroup has a file.
func (h *hierarchy) existsFile(dir, file string) bool { return h.there(join(dir, file), 0) }

func (h *hierarchy) there(name string, flags uint64) bool {
	fd, err := h.open(name, unix.O_PATH|flags)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// mkdir makes one cgroup. Names have been validated, and cgroup file systems have no symbolic links to follow.
func (h *hierarchy) mkdir(dir string) error { return unix.Mkdirat(h.fd, dir, 0o755) }

// rmdir removes one cgroup. An absent one is success.
func (h *hierarchy) rmdir(dir string) error {
	err := unix.Unlinkat(h.fd, dir, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.EROFS) && !h.exists(dir) { // the kernel does not look for the name on a read-only mount
		return nil
	}
	return unlessAbsent(err)
}

// write writes text to a file of a cgroup at once, which is how the kernel takes it.
func (h *hierarchy) write(dir, file, text string, flags uint64) error {
	fd, err := h.open(join(dir, file), unix.O_WRONLY|flags)
	if err != nil {
		return err
	}
	_, err = retry(func() (int, error) { return unix.Write(fd, []byte(text)) })
	unix.Close(fd)
	return err
}

// read appends the content of a file of a cgroup to buf, which should have room for all of it.
func (h *hierarchy) read(buf []byte, dir, file string) ([]byte, error) {
	fd, err := h.open(join(dir, file), unix.O_RDONLY)
	if err != nil {
		return buf, err
	}
	defer unix.Close(fd)
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(4096, len(buf)))
		}
		n, err := retry(func() (int, error) { return unix.Read(fd, buf[len(buf):cap(buf)]) })
		if err != nil {
			return buf, err
		}
		full := len(buf)+n == cap(buf)
		buf = buf[:len(buf)+n]
		// The kernel stops early only where its own page is full, so that little in an answer is the end of it.
		if n == 0 || n < 2048 && !full {
			return buf, nil
		}
	}
}

// children returns the names of the cgroups directly below one, without a look at the names of its files, which are many more.
func (h *hierarchy) children(dir string) (names []string, err error) {
	fd, err := h.open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for n, buf := 1, make([]byte, 4<<10); n > 0 && err == nil; {
		n, err = dirent.Next(fd, buf, func(name []byte, t dirent.Type) {
			if t == dirent.Directory {
				names = append(names, string(name))
			}
		})
	}
	return names, err
}

// walk calls visit for a cgroup and all below it, children before their parent. What disappears meanwhile is left
// out. It returns the first error of visit, after all visits. Where the path gets too long for the kernel, which a
// container that may make cgroups can see to, visits go on from a handle further down.
func (h *hierarchy) walk(dir string, visit func(h *hierarchy, dir string) error) error {
	below, prefix := h, dir
	if len(dir) > unix.PathMax/4 {
		fd, err := h.open(dir, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return unlessAbsent(err)
		}
		below, prefix = &hierarchy{dir: h.path(dir), fd: fd, controllers: h.controllers}, ""
		defer below.close()
	}
	names, err := below.children(prefix)
	if err != nil {
		return unlessAbsent(err)
	}
	var first error
	for _, name := range names {
		if err := below.walk(join(prefix, name), visit); err != nil && first == nil {
			first = err
		}
	}
	if err := visit(h, dir); err != nil && first == nil {
		first = err
	}
	return first
}

// retry does again what a signal broke off: the Go runtime sends itself some.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// absent tells a file or directory that is not there, or no longer: ENODEV comes from one that is removed while open.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// unlessAbsent is err, or nil where there is nothing that could have failed.
func unlessAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}
