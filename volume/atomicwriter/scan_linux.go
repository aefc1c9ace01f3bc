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

// Minimum and maximum size in bytes of the buffer for directory entries and file contents.
const (
	minBuffer = 4 << 10
	maxBuffer = 64 << 10
)

// bufferSize returns the size of the buffer for reading the files of a payload: that of the largest file and one byte, within
// limits.
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

// maxStale is the maximum number of stale entries, and of links that are not in the payload, that one Write handles. A container
// can create any number of them: the next Write handles more.
const maxStale = 1000

// listing has the entries of the directory that a writer writes to.
type listing struct {
	current    string   // version that "..data" points to; empty: none
	stale      []string // versions and temporary links that a killed writer left
	present    []bool   // whether the name exists, by index of the payload entry
	otherLinks []string // links that are not in the payload
}

// listDir lists the directory that w writes to.
func (w *writer) listDir() (*listing, error) {
	found := &listing{present: make([]bool, len(w.entries))}
	if target, ok := readLink(w.dir, dataName, w.buf); ok && isVersion(target) {
		found.current = target
	}
	missing := len(w.entries)
	for {
		used, err := dirent.Next(w.dir, w.buf, func(name []byte, t dirent.Type) {
			if w.addName(found, name, t) {
				missing--
			}
		})
		if err != nil {
			return nil, err
		}
		if used == 0 || missing <= 0 && w.isLastBlock(used) { // without the other entries, only stale versions may be missing
			return found, nil
		}
	}
}

// isLastBlock reports whether the block of directory entries that was read last, of used bytes, is the last one, because the
// buffer has room for more.
func (w *writer) isLastBlock(used int) bool { return used <= len(w.buf)-dirent.MaxRecord }

// addName adds a directory entry to the list, and reports whether it belongs to the payload.
func (w *writer) addName(list *listing, name []byte, t dirent.Type) (expected bool) {
	if i, ok := findEntry(w.entries, name); ok {
		list.present[i] = true
		return true
	}
	link := t == dirent.Link || t == dirent.Unknown
	switch s := string(name); {
	case s == dataName && link:
	case s == dataName, s == newDataName, isVersion(s) && s != list.current:
		if len(list.stale) < maxStale {
			list.stale = append(list.stale, s)
		}
	case link && s != list.current && len(list.otherLinks) < maxStale:
		list.otherLinks = append(list.otherLinks, s)
	}
	return false
}

// findEntry returns the index of the entry with this name, and false if there is none. The entries are sorted by name.
func findEntry(entries []entry, name []byte) (int, bool) {
	return slices.BinarySearchFunc(entries, name, func(e entry, name []byte) int {
		return strings.Compare(e.name, string(name))
	})
}

// isCurrent reports whether the directory of this version has exactly the files and contents of the payload.
func (w *writer) isCurrent(version string) bool {
	dir, err := openDir(w.dir, version)
	if err != nil {
		return false // a new version is written
	}
	defer unix.Close(dir)
	return w.equalDir(dir, w.entries)
}

// equalDir reports whether the directory with descriptor dir has exactly these files and contents.
func (w *writer) equalDir(dir int, entries []entry) bool {
	missing, same, unsure := len(entries), true, false
	for {
		used, err := dirent.Next(dir, w.buf, func(name []byte, t dirent.Type) {
			i, ok := findEntry(entries, name)
			same = same && ok && (t == dirent.Unknown || t == entries[i].direntType())
			unsure = unsure || t == dirent.Unknown
			missing--
		})
		if err != nil || !same || missing < 0 {
			return false
		}
		if used == 0 || missing == 0 && w.isLastBlock(used) {
			break
		}
	}
	if missing > 0 {
		return false
	}
	for i := range entries {
		switch e := &entries[i]; {
		case e.file == nil && !w.equalSubdirectory(dir, e):
			return false
		case e.file != nil && (unsure && !isRegular(dir, e.name) || !w.equalFile(dir, e)):
			return false
		}
	}
	return true
}

// isRegular reports whether a file with this name in the directory with descriptor dir is a regular file.
func isRegular(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// direntType returns the file type of e in a directory listing: Directory or Regular.
func (e *entry) direntType() dirent.Type {
	if e.file == nil {
		return dirent.Directory
	}
	return dirent.Regular
}

func (w *writer) equalSubdirectory(dir int, item *entry) bool {
	child, err := openDir(dir, item.name)
	if err != nil {
		return false
	}
	defer unix.Close(child)
	return w.equalDir(child, item.children)
}

// equalFile reports whether a regular file in the directory dir has the contents of item.
func (w *writer) equalFile(dir int, item *entry) bool {
	// The caller has checked its type: opening a device can have side effects.
	fd, err := unix.Openat(dir, item.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	want := item.file.Data
	for {
		n, err := unix.Read(fd, w.buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || n > len(want) || !bytes.Equal(w.buf[:n], want[:n]):
			return false
		}
		want = want[n:]
		// A short read means the end of the file: no process writes to a version.
		if n == 0 || len(want) == 0 && n < len(w.buf) {
			return len(want) == 0
		}
	}
}
