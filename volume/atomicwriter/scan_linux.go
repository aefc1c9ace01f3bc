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

// bufferSize is how much of a directory or a file is read at once.
const bufferSize = 16 << 10

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
	for more := true; more; {
		var err error
		more, err = dirent.Next(w.dir, w.buf, func(name []byte, t dirent.Type) { w.note(found, name, t) })
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// note adds one name to a listing.
func (w *writer) note(found *listing, name []byte, t dirent.Type) {
	if i, ok := slices.BinarySearchFunc(w.entries, name, func(e entry, name []byte) int {
		return strings.Compare(e.name, string(name))
	}); ok {
		found.present[i] = true
		return
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
	count := 0
	for more := true; more; {
		var err error
		more, err = dirent.Next(dir, w.buf, func([]byte, dirent.Type) { count++ })
		if err != nil || count > len(entries) {
			return false
		}
	}
	if count != len(entries) {
		return false
	}
	for i := range entries {
		if e := &entries[i]; e.file != nil && !w.sameFile(dir, e) || e.file == nil && !w.sameChild(dir, e) {
			return false
		}
	}
	return true
}

func (w *writer) sameChild(dir int, e *entry) bool {
	child, err := openDir(dir, e.name)
	if err != nil {
		return false
	}
	defer unix.Close(child)
	return w.sameDir(child, e.children)
}

// sameFile compares a file with its content. It is looked at before it is opened, as opening a device does something, and
// not read if its size is another.
func (w *writer) sameFile(dir int, e *entry) bool {
	var st unix.Stat_t
	err := unix.Fstatat(dir, e.name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != int64(len(e.file.Data)) {
		return false
	}
	if st.Size == 0 {
		return true
	}
	fd, err := unix.Openat(dir, e.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	for want := e.file.Data; len(want) > 0; {
		n, err := unix.Read(fd, w.buf[:min(len(w.buf), len(want))])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n <= 0 || !bytes.Equal(w.buf[:n], want[:n]):
			return false
		default:
			want = want[n:]
		}
	}
	return true
}
