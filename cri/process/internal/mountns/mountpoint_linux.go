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

// maxLinks is the maximum number of symbolic links on the way to a mount point, as in the kernel.
const maxLinks = 40

// pathPosition is the position reached on the path to a mount point.
type pathPosition struct {
	fd      int      // descriptor of the deepest existing element
	missing []string // elements below fd that do not exist
	inside  *Mount   // mount of the container that contains fd; nil: the host's files
}

func (p *pathPosition) closeFD() { _ = unix.Close(p.fd) }

// moveTo closes the descriptor of p and replaces it by fd.
func (p *pathPosition) moveTo(fd int) {
	p.closeFD()
	p.fd = fd
}

const openElement = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC

// resolvePath resolves the path of a mount point as far as it exists. The caller closes the descriptor of the result.
func (s *namespaceBuilder) resolvePath(target string) (*pathPosition, error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /: %w", err)
	}
	p := &pathPosition{fd: root}
	rest := splitPath(target)
	for links := 0; len(rest) > 0; {
		// one element after another, so that no process can replace an element by a link meanwhile
		next, err := unix.Openat(p.fd, rest[0], openElement, 0)
		if errors.Is(err, unix.ENOENT) {
			p.missing = rest
			break
		}
		if err != nil {
			p.closeFD()
			return nil, fmt.Errorf("element %q: %w", rest[0], err)
		}
		if rest, err = s.resolveElement(p, next, rest, &links); err != nil {
			p.closeFD()
			return nil, err
		}
	}
	if slices.Contains(p.missing, "..") {
		p.closeFD()
		return nil, fmt.Errorf("a link leads through %q, which is missing", p.missing[0])
	}
	return p, nil
}

// resolveElement resolves the first path element, whose descriptor is fd, and returns the elements that remain. It closes
// fd or passes it to pos.
func (s *namespaceBuilder) resolveElement(pos *pathPosition, fd int, elements []string, links *int) ([]string, error) {
	st, err := statMount(fd)
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		pos.moveTo(fd)
		if m := s.containerMounts[st.Mnt_id]; m != nil {
			pos.inside = m
		}
		return elements[1:], nil
	}
	defer unix.Close(fd)
	if pos.inside != nil {
		return nil, fmt.Errorf("element %q is a link in the mount at %s, which is not followed", elements[0], pos.inside.Target)
	}
	if *links++; *links > maxLinks {
		return nil, fmt.Errorf("element %q: %w", elements[0], unix.ELOOP)
	}
	// a link of the host is replaced by the elements of its target
	to, err := readLink(fd, "")
	if err != nil {
		return nil, fmt.Errorf("element %q: %w", elements[0], err)
	}
	if strings.HasPrefix(to, "/") {
		root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open /: %w", err)
		}
		pos.moveTo(root)
	}
	return append(splitPath(to), elements[1:]...), nil
}

// splitPath splits a path into its elements. It omits empty elements and ".".
func splitPath(path string) []string {
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

// createMissing creates the missing elements of the path at pos, of which the last is a directory or file, and moves pos
// there.
func (s *namespaceBuilder) createMissing(pos *pathPosition, dir bool) error {
	if len(pos.missing) == 0 {
		return nil
	}
	if pos.inside == nil {
		// in the host's directories
		fd, err := s.writableCopy(pos.fd)
		if err != nil {
			return fmt.Errorf("mount point %q is missing: %w", pos.missing[0], err)
		}
		pos.moveTo(fd)
	}
	for i, name := range pos.missing {
		fd, err := createElement(pos.fd, name, dir || i < len(pos.missing)-1)
		if err != nil && pos.inside != nil {
			return fmt.Errorf("mount point %q is missing in the mount at %s: %w", name, pos.inside.Target, err)
		}
		if err != nil {
			return fmt.Errorf("mount point %q is missing: %w", name, err)
		}
		pos.moveTo(fd)
	}
	pos.missing = nil
	return nil
}

// createElement creates an empty file or a directory, and returns a descriptor of the new or existing element.
func createElement(parent int, name string, dir bool) (int, error) {
	flags := openElement
	var err error
	if dir {
		flags |= unix.O_DIRECTORY
		err = unix.Mkdirat(parent, name, 0o755)
	} else {
		err = unix.Mknodat(parent, name, unix.S_IFREG|0o644, 0)
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("make it: %w", err)
	}
	fd, err := unix.Openat(parent, name, flags, 0)
	if err != nil {
		return -1, fmt.Errorf("open it: %w", err)
	}
	return fd, nil
}
