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

// Limits of a scan.
const (
	maxSockets = 256
	maxDirs    = 64
	maxEntries = 4096 // in all directories
)

// scanDir returns the sockets in dir and its subdirectories, and these directories. An error means that the result is
// incomplete.
func scanDir(dir string) (sockets map[string]socketID, dirs []string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	s := scanner{root: root, dir: dir, sockets: map[string]socketID{}}
	s.todo = []string{"."}
	for len(s.todo) > 0 && s.entries <= maxEntries {
		next := s.todo[0]
		s.todo = s.todo[1:]
		s.dirs = append(s.dirs, filepath.Join(dir, next))
		err := s.readDir(next)
		if gone := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR); err != nil && (next == "." || !gone) {
			s.err = err
		}
	}
	return s.sockets, s.dirs, s.err
}

// scanner is the state of one scan.
type scanner struct {
	root    *os.Root
	dir     string
	todo    []string // directories to read, relative to the root
	dirs    []string
	sockets map[string]socketID
	entries int
	err     error // the last error; the scan continues after it
}

// readDir adds the entries of the directory dir, which is relative to the root of the scan, to the result.
func (s *scanner) readDir(dir string) error {
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
		s.addEntry(filepath.Join(dir, name))
	}
	return nil
}

// addEntry adds a socket to the result of the scan, or a directory to those that are read later.
func (s *scanner) addEntry(name string) {
	info, err := s.root.Lstat(name)
	if err != nil {
		return // removed since the listing
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
		s.sockets[filepath.Join(s.dir, name)] = socketID{st.Dev, st.Ino, info.ModTime().UnixNano()}
	}
}
