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
	maxLinks   = 40     // symbolic links followed per name; the kernel's limit
	maxEntries = 65_536 // entries listed per directory
)

// Errors for files that are not opened. For fs.ErrPermission, net/http responds with 403.
var (
	errLeadsOut  = fmt.Errorf("it leads out of the directory: %w", fs.ErrPermission)
	errIrregular = fmt.Errorf("it is neither a regular file nor a directory: %w", fs.ErrPermission)
)

// logTree is the log directory, opened such that no file outside of it can be opened. It is opened for each request, because the
// directory may be created or replaced at any time.
type logTree struct {
	root *os.Root
	dirs []string // absolute paths of the directory, by which absolute links may refer to it
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

// Open opens a file or directory, for [http.FileServer].
func (t *logTree) Open(name string) (http.File, error) {
	f, err := t.openFile(strings.TrimPrefix(path.Clean("/"+name), "/"))
	if err != nil {
		return nil, err
	}
	return &boundedFile{File: f}, nil
}

// checkFile returns an error if the named file cannot be opened within the log directory.
func (t *logTree) checkFile(name string) error {
	f, err := t.openFile(strings.TrimLeft(filepath.ToSlash(name), "/"))
	if err != nil {
		return err
	}
	return f.Close()
}

// openFile opens a regular file or directory in the log directory.
func (t *logTree) openFile(name string) (*os.File, error) {
	if name == "" {
		name = "."
	}
	if strings.ContainsRune(name, 0) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	inside, err := t.resolveLinks(name)
	if err != nil {
		return nil, err
	}
	info, err := t.root.Lstat(inside)
	if err == nil && !isRegularOrDir(info.Mode()) {
		err = &fs.PathError{Op: "open", Path: name, Err: errIrregular}
	}
	if err != nil {
		return nil, asNotExist(err)
	}
	// If a symbolic link is replaced after the check, os.Root opens no file outside of the directory.
	f, err := t.root.OpenFile(inside, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, asNotExist(err)
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

// asNotExist adds fs.ErrNotExist to an ENOTDIR error, because net/http then responds with 404.
func asNotExist(err error) error {
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return err
}

// resolveLinks returns name with all symbolic links replaced by their targets. It returns an error if a link leads out of the log
// directory.
func (t *logTree) resolveLinks(name string) (string, error) {
	for range maxLinks {
		link, target, err := t.firstLink(name)
		if err != nil || link == "" {
			return name, err
		}
		rest := strings.TrimPrefix(name[len(link):], "/")
		if path.IsAbs(target) {
			if target = t.relativeToRoot(target); target == "" {
				return "", &fs.PathError{Op: "open", Path: name, Err: errLeadsOut}
			}
			name = path.Join(target, rest)
		} else {
			// The part before link has no links, so its .. elements can be removed lexically. Those of target are removed
			// lexically too.
			name = path.Join(path.Dir(link), target, rest)
		}
		if name == ".." || strings.HasPrefix(name, "../") {
			return "", &fs.PathError{Op: "open", Path: link, Err: errLeadsOut}
		}
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

// firstLink returns the shortest prefix of name that is a symbolic link, and its target, or empty strings.
func (t *logTree) firstLink(name string) (link, target string, err error) {
	for end := 0; end < len(name); end++ {
		next := strings.IndexByte(name[end:], '/')
		if next < 0 {
			next = len(name) - end
		}
		end += next
		info, err := t.root.Lstat(name[:end])
		if err != nil {
			return "", "", asNotExist(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		target, err := t.root.Readlink(name[:end])
		return name[:end], target, err
	}
	return "", "", nil
}

// relativeToRoot converts an absolute path to a path relative to the log directory, or to an empty string if it is outside.
func (t *logTree) relativeToRoot(target string) string {
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

// boundedFile is an open file or directory that limits the number of listed entries.
type boundedFile struct{ *os.File }

// Readdir returns the entries of the directory, at most maxEntries. [http.File] requires it, but net/http calls ReadDir.
func (f *boundedFile) Readdir(n int) ([]fs.FileInfo, error) { return f.File.Readdir(limitEntries(n)) }

// ReadDir lists a directory up to maxEntries.
func (f *boundedFile) ReadDir(n int) ([]fs.DirEntry, error) {
	all, err := f.File.ReadDir(limitEntries(n))
	if n <= 0 && err != nil && len(all) == 0 && !errors.Is(err, fs.ErrPermission) {
		return all, nil // the end of the directory, which is no error if n <= 0
	}
	return all, err
}

func limitEntries(n int) int {
	if n <= 0 {
		return maxEntries
	}
	return min(n, maxEntries)
}
