// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package mountns

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many symbolic links there may be on the way to a mount point, as in the kernel.
const maxLinks = 40

// place is how far the way to a mount point leads.
type place struct {
	fd      int      // the deepest element that is there
	missing []string // the elements below it
	inside  *Mount   // the mount of the container that fd is in; nil: the host's files
}

func (p *place) close() { _ = unix.Close(p.fd) }

// enter goes on to a descriptor.
func (p *place) enter(fd int) {
	p.close()
	p.fd = fd
}

const openElement = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// walk goes to a mount point, one element at a time, so that nobody can put a link in the way.
func (s *space) walk(target string) (*place, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /: %w", err)
	}
	p := &place{fd: root}
	rest := elements(target)
	for links := 0; len(rest) > 0; {
		next, err := unix.Openat(p.fd, rest[0], openElement, 0)
		if errors.Is(err, unix.ENOENT) {
			p.missing = rest
			break
		}
		if err != nil {
			p.close()
			return nil, fmt.Errorf("element %q: %w", rest[0], err)
		}
		if rest, err = s.step(p, next, rest, &links); err != nil {
			p.close()
			return nil, err
		}
	}
	if slices.Contains(p.missing, "..") {
		p.close()
		return nil, fmt.Errorf("a link leads through %q, which is missing", p.missing[0])
	}
	return p, nil
}

// step takes one element, which is open as next, and returns those that come after it.
func (s *space) step(p *place, next int, rest []string, links *int) ([]string, error) {
	st, err := look(next)
	if err != nil {
		_ = unix.Close(next)
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		p.enter(next)
		if m := s.mine[st.Mnt_id]; m != nil {
			p.inside = m
		}
		return rest[1:], nil
	}
	defer unix.Close(next)
	if p.inside != nil {
		return nil, fmt.Errorf("element %q is a link in the mount at %s, which is not followed", rest[0], p.inside.Target)
	}
	if *links++; *links > maxLinks {
		return nil, fmt.Errorf("element %q: %w", rest[0], unix.ELOOP)
	}
	to, err := readLink(next, "")
	if err != nil {
		return nil, fmt.Errorf("element %q: %w", rest[0], err)
	}
	if strings.HasPrefix(to, "/") {
		root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open /: %w", err)
		}
		p.enter(root)
	}
	return append(elements(to), rest[1:]...), nil
}

// elements splits a path. Elements "." have no effect.
func elements(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(e string) bool { return e == "" || e == "." })
}

func readLink(dir int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", os.NewSyscallError("readlinkat", err)
	}
	return string(buf[:n]), nil
}

// make makes what is missing of a mount point, and goes there.
func (s *space) make(p *place, dir bool) error {
	if len(p.missing) == 0 {
		return nil
	}
	if p.inside == nil {
		fd, err := s.ownDirectory(p.fd)
		if err != nil {
			return fmt.Errorf("mount point %q is missing: %w", p.missing[0], err)
		}
		p.enter(fd)
	}
	for i, name := range p.missing {
		fd, err := makeElement(p.fd, name, dir || i < len(p.missing)-1)
		if err != nil && p.inside != nil {
			return fmt.Errorf("mount point %q is missing in the mount at %s: %w", name, p.inside.Target, err)
		}
		if err != nil {
			return fmt.Errorf("mount point %q is missing: %w", name, err)
		}
		p.enter(fd)
	}
	p.missing = nil
	return nil
}

// makeElement makes a directory or an empty file, or takes one that somebody else has just made, and opens it.
func makeElement(at int, name string, dir bool) (int, error) {
	flags := openElement
	var err error
	if dir {
		flags |= unix.O_DIRECTORY
		err = unix.Mkdirat(at, name, 0o755)
	} else {
		err = unix.Mknodat(at, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("make it: %w", err)
	}
	fd, err := unix.Openat(at, name, flags, 0)
	if err != nil {
		return -1, fmt.Errorf("open it: %w", err)
	}
	return fd, nil
}
