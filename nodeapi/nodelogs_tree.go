// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	maxLinks   = 40     // that are followed for a name, as many as the kernel does
	maxEntries = 65_536 // that are listed of a directory
)

// Why a name is not opened. An error that is a permission one is a 403 of net/http.
var (
	errLeadsOut  = fmt.Errorf("it leads out of the directory: %w", fs.ErrPermission)
	errIrregular = fmt.Errorf("it is neither a regular file nor a directory: %w", fs.ErrPermission)
)

// logTree is a directory out of which nothing leads. It is opened for each request, so that it may be replaced, and made later.
type logTree struct {
	root *os.Root
	dirs []string // absolute paths of the directory, by which absolute links may name it
}

func openLogTree(dir string) (*logTree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	t := &logTree{root: root}
	if abs, err := filepath.Abs(dir); err == nil {
		t.dirs = append(t.dirs, abs)
	}
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		t.dirs = append(t.dirs, resolved)
	}
	return t, nil
}

func (t *logTree) close() { _ = t.root.Close() }

// Open opens a file or a directory, for [http.FileServer].
func (t *logTree) Open(name string) (http.File, error) {
	f, err := t.open(strings.TrimPrefix(path.Clean("/"+name), "/"))
	if err != nil {
		return nil, err
	}
	return &logFile{File: f}, nil
}

// stat returns why a name cannot be read.
func (t *logTree) stat(name string) error {
	f, err := t.open(strings.TrimLeft(filepath.ToSlash(name), "/"))
	if err != nil {
		return err
	}
	return f.Close()
}

// open opens a name of the directory. Each step that looks at links may be out of date in the next one: it is the root that keeps names
// inside, and links that were swapped make an error.
func (t *logTree) open(name string) (*os.File, error) {
	if name == "" {
		name = "."
	}
	if strings.ContainsRune(name, 0) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	inside, err := t.resolve(name)
	if err != nil {
		return nil, err
	}
	info, err := t.root.Lstat(inside)
	if err == nil && !isRegularOrDir(info.Mode()) {
		err = &fs.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	if err != nil {
		return nil, absent(err)
	}
	f, err := t.root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, absent(err)
	}
	opened, err := f.Stat()
	if err == nil && !isRegularOrDir(opened.Mode()) {
		err = &fs.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func isRegularOrDir(mode fs.FileMode) bool { return mode.IsRegular() || mode.IsDir() }

// absent makes an error about a file where a directory should be one about a file that is not there, as package http does.
func absent(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// resolve returns a name without links on the way, as far as there are some now.
func (t *logTree) resolve(name string) (string, error) {
	for range maxLinks {
		link, target, err := t.firstLink(name)
		if err != nil || link == "" {
			return name, err
		}
		rest := strings.TrimPrefix(name[len(link):], "/")
		if path.IsAbs(target) {
			if target = t.inside(target); target == "" {
				return "", &fs.PathError{Op: "open", Path: name, Err: errLeadsOut}
			}
			name = path.Join(target, rest)
		} else {
			// What is before the link has no links any more, so that its .. are lexical. Of a target they are taken as lexical.
			name = path.Join(path.Dir(link), target, rest)
		}
		if name == ".." || strings.HasPrefix(name, "../") {
			return "", &fs.PathError{Op: "open", Path: link, Err: errLeadsOut}
		}
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// firstLink returns the first part of a name that is a link, and where that leads; an empty one if there is none.
func (t *logTree) firstLink(name string) (link, target string, err error) {
	for end := 0; end < len(name); end++ {
		next := strings.IndexByte(name[end:], '/')
		if next < 0 {
			next = len(name) - end
		}
		end += next
		info, err := t.root.Lstat(name[:end])
		if err != nil {
			return "", "", absent(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := t.root.Readlink(name[:end])
		return name[:end], target, err
	}
	return "", "", nil
}

// inside returns the name of an absolute path within the directory, or an empty one.
func (t *logTree) inside(target string) string {
	target = path.Clean(target)
	for _, dir := range t.dirs {
		if target == dir {
			return "."
		}
		if rest, found := strings.CutPrefix(target, strings.TrimSuffix(dir, "/")+"/"); found {
			return rest
		}
	}
	return ""
}

// logFile is an open file whose directory entries are bounded.
type logFile struct{ *os.File }

// Readdir is not used by package http where there is a ReadDir, and is bounded like it.
func (f *logFile) Readdir(n int) ([]fs.FileInfo, error) { return f.File.Readdir(boundEntries(n)) }

// ReadDir lists a directory, of which entries beyond a number are left out.
func (f *logFile) ReadDir(n int) ([]fs.DirEntry, error) {
	all, err := f.File.ReadDir(boundEntries(n))
	if n <= 0 && err != nil && len(all) == 0 && !errors.Is(err, fs.ErrPermission) {
		return all, nil // the end, which is no error for whoever asks for all
	}
	return all, err
}

func boundEntries(n int) int {
	if n <= 0 {
		return maxEntries
	}
	return min(n, maxEntries)
}
