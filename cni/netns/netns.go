// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Error is the error of one operation on a network namespace.
type Error struct {
	Op   string // "create", "remove", "list" or "enter"
	Path string
	Err  error
}

// Error returns the text of the error: the operation, the path of the network namespace and the cause.
func (e *Error) Error() string {
	return fmt.Sprintf("%s network namespace %s: %v", e.Op, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Dir is a directory of pinned network namespaces.
type Dir struct {
	path string

	mu    sync.Mutex // guards ready
	ready bool       // the directory is bind-mounted onto itself
}

// New returns a Dir for the directory at path, which must be absolute. [Dir.Create] creates the directory.
func New(path string) *Dir { return &Dir{path: filepath.Clean(path)} }

// Path returns the path of the network namespace with this name, whether or not it exists.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Create creates a network namespace and returns its path. It mounts the namespace on a file with this name, so that the
// namespace exists without processes. It fails with [fs.ErrExist] if the name exists.
func (d *Dir) Create(name string) (path string, err error) {
	path = d.Path(name)
	if err := d.createPinned(name, path); err != nil {
		return "", &Error{Op: "create", Path: path, Err: err}
	}
	return path, nil
}

func (d *Dir) createPinned(name, path string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := d.prepareDir(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return stripPath(err)
	}
	if err := errors.Join(f.Close(), createAndMount(path)); err != nil {
		return errors.Join(err, stripPath(os.Remove(path)))
	}
	return nil
}

// prepareDir creates the directory and bind-mounts it onto itself. After the first success, it does nothing.
func (d *Dir) prepareDir() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ready {
		return nil
	}
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	if err := bindOverItself(d.path); err != nil {
		return err
	}
	d.ready = true
	return nil
}

// Remove unmounts a network namespace and removes its file, which may lack a namespace after a killed [Dir.Create]. The
// kernel frees the namespace when no process uses it. A missing name is no error.
func (d *Dir) Remove(name string) error {
	path := d.Path(name)
	err := checkName(name)
	if err == nil {
		err = unmount(path)
	}
	if err == nil {
		err = stripPath(os.Remove(path))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &Error{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// Names returns the sorted names of all files in the directory. If the directory does not exist, it returns none.
func (d *Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Op: "list", Path: d.path, Err: stripPath(err)}
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && checkName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Pinned reports whether a network namespace is mounted on the file with this name. After a reboot no namespace is mounted.
func (d *Dir) Pinned(name string) bool { return checkName(name) == nil && isMounted(d.Path(name)) }

// maxName is the maximum length of a name in bytes.
const maxName = 200

// checkName returns an error if name is not safe as a file name: it must not start with a dot or contain a separator.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("a name has 1 to %d bytes, not %d", maxName, len(name))
	case strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00"):
		return fmt.Errorf("name %q begins with a dot or has a separator", name)
	}
	return nil
}

// stripPath removes the path from an error of package os, because [Error] adds the path itself.
func stripPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}
