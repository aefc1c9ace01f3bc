// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/dirent"
)

// Sizes of what is read at once of a directory or a file.
const (
	minBuffer = 4 << 10
	maxBuffer = 64 << 10
)

// bufferSize returns the size for a payload: what its largest file takes, and a byte that it must not have.
func bufferSize(entries []entry) int {
	size := minBuffer
	for i := range entries {
		if e := &entries[i]; e.file != nil {
			size = max(size, len(e.file.Data)+1)
		} else {
			size = max(size, bufferSize(e.children))
		}
	}
	return min(size, maxBuffer)
}

// maxStale is how much debris, and how many links that may be stale, one write looks after. A container that may write to
// the directory can make any number; the next write goes on.
const maxStale = 1000

// listing is what a directory holds.
type listing struct {
	current string   // the version that "..data" leads to; none: ""
	debris  []string // what a writer that was killed has left
	present []bool   // by entry of the payload: whether something has its name
	others  []string // links that are not of the payload
}

// scan lists the directory.
func (w *writer) scan() (*listing, error) {
	found := &listing{present: make([]bool, len(w.entries))}
	if target, ok := readLink(w.dir, dataName, w.buf); ok && isVersion(target) {
		found.current = target
	}
	missing := len(w.entries)
	for {
		used, err := dirent.Next(w.dir, w.buf, func(name []byte, t dirent.Type) {
			if w.note(found, name, t) {
				missing--
			}
		})
		if err != nil {
			return nil, err
		}
		if used == 0 || missing <= 0 && w.partial(used) {
			return found, nil
		}
	}
}

// partial reports whether a block of a directory that has all that was looked for is the last one, which a file system
// says by leaving room for another entry. There may be more where it answers in parts; that waits for the next write.
func (w *writer) partial(used int) bool { return used <= len(w.buf)-dirent.MaxRecord }

// note adds one name to a listing, and reports whether it is one of the payload.
func (w *writer) note(found *listing, name []byte, t dirent.Type) (expected bool) {
	if i, ok := search(w.entries, name); ok {
		found.present[i] = true
		return true
	}
	link := t == dirent.Link || t == dirent.Unknown
	switch s := string(name); {
	case s == dataName && link:
	case s == dataName, s == nextName, isVersion(s) && s != found.current:
		if len(found.debris) < maxStale {
			found.debris = append(found.debris, s)
		}
	case link && s != found.current && len(found.others) < maxStale:
		found.others = append(found.others, s)
	}
	return false
}

// search returns the entry with a name.
func search(entries []entry, name []byte) (int, bool) {
	return slices.BinarySearchFunc(entries, name, func(e entry, name []byte) int {
		return strings.Compare(e.name, string(name))
	})
}

// holds reports whether a version is the payload: the same files with the same content, and nothing else. What cannot be
// read is not.
func (w *writer) holds(version string) bool {
	dir, err := openDir(w.dir, version)
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	return w.sameDir(dir, w.entries)
}

// sameDir compares a directory with its part of the payload, and goes no deeper than that.
func (w *writer) sameDir(dir int, entries []entry) bool {
	missing, same, unsure := len(entries), true, false
	for {
		used, err := dirent.Next(dir, w.buf, func(name []byte, t dirent.Type) {
			i, ok := search(entries, name)
			same = same && ok && (t == dirent.Unknown || t == entries[i].kind())
			unsure = unsure || t == dirent.Unknown
			missing--
		})
		if err != nil || !same || missing < 0 {
			return false
		}
		if used == 0 || missing == 0 && w.partial(used) {
			break
		}
	}
	if missing > 0 {
		return false
	}
	for i := range entries {
		switch e := &entries[i]; {
		case e.file == nil && !w.sameChild(dir, e):
			return false
		case e.file != nil && (unsure && !isRegular(dir, e.name) || !w.sameFile(dir, e)):
			return false
		}
	}
	return true
}

// isRegular reports whether an entry of a directory is a regular file.
func isRegular(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// kind returns what a directory says that an entry is.
func (e *entry) kind() dirent.Type {
	if e.file == nil {
		return dirent.Directory
	}
	return dirent.Regular
}

func (w *writer) sameChild(dir int, e *entry) bool {
	child, err := openDir(dir, e.name)
	if err != nil {
		return false
	}
	defer unix.Close(child)
	return w.sameDir(child, e.children)
}

// sameFile compares a file with its content. It is a regular one: opening a device may do something.
func (w *writer) sameFile(dir int, e *entry) bool {
	fd, err := unix.Openat(dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	want := e.file.Data
	for {
		n, err := unix.Read(fd, w.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n > len(want) || !bytes.Equal(w.buf[:n], want[:n]):
			return false
		}
		want = want[n:]
		// What is less than the buffer is the end of a file of this length, which nobody writes to.
		if n == 0 || len(want) == 0 && n < len(w.buf) {
			return len(want) == 0
		}
	}
}
