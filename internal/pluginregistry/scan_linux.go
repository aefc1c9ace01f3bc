// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pluginregistry

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The bounds of what is looked at.
const (
	maxSockets = 256
	maxDirs    = 64
	maxEntries = 4096 // of all directories
)

// scan returns the sockets in a directory and below it, and the directories. What is over the bounds is left out, with an error.
// Links, and names that begin with a dot, are not looked at.
func scan(dir string) (sockets map[string]identity, dirs []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	s := scanner{root: root, dir: dir, sockets: map[string]identity{}}
	s.todo = []string{"."}
	for len(s.todo) > 0 && s.entries <= maxEntries {
		next := s.todo[0]
		s.todo = s.todo[1:]
		s.dirs = append(s.dirs, filepath.Join(dir, next))
		err := s.read(next)
		if gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR); err != nil && (next == "." || !gone) {
			s.err = err
		}
	}
	return s.sockets, s.dirs, s.err
}

// scanner is one look at a directory.
type scanner struct {
	root    *os.Root
	dir     string
	todo    []string // directories below the root
	dirs    []string
	sockets map[string]identity
	entries int
	err     error // the last one: what follows is looked at all the same
}

// read looks at the entries of one directory.
func (s *scanner) read(dir string) error {
	f, err := s.root.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(maxEntries + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if s.entries += len(names); s.entries > maxEntries {
		s.err = fmt.Errorf("more than %d entries", maxEntries)
	}
	for _, name := range names {
		if strings.HasPrefix(name, ".") {
			continue
		}
		s.entry(filepath.Join(dir, name))
	}
	return nil
}

// entry looks at one entry.
func (s *scanner) entry(name string) {
	info, err := s.root.Lstat(name)
	if err != nil {
		return // it is gone
	}
	switch st, _ := info.Sys().(*syscall.Stat_t); {
	case info.IsDir():
		if len(s.dirs)+len(s.todo) >= maxDirs {
			s.err = fmt.Errorf("more than %d directories", maxDirs)
			return
		}
		s.todo = append(s.todo, name)
	case info.Mode().Type() == fs.ModeSocket && st != nil:
		if len(s.sockets) >= maxSockets {
			s.err = fmt.Errorf("more than %d sockets", maxSockets)
			return
		}
		s.sockets[filepath.Join(s.dir, name)] = identity{st.Dev, st.Ino, info.ModTime().UnixNano()}
	}
}
