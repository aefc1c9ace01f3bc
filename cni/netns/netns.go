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

// Error is the error of one operation.
type Error struct {
	Op   string // "create", "remove", "list" or "enter"
	Path string
	Err  error
}

// Error returns "verb network namespace path: cause".
func (e *Error) Error() string {
	return fmt.Sprintf("%s network namespace %s: %v", e.Op, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Dir is a directory of network namespaces.
type Dir struct {
	path string

	mu    sync.Mutex // guards ready
	ready bool       // the directory is bound over itself
}

// New returns a Dir for an absolute path. The directory is made when it is needed.
func New(path string) *Dir { return &Dir{path: filepath.Clean(path)} }

// Path returns where a namespace of this name is or would be.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Create makes a network namespace, pins it and returns its path. It fails with [fs.ErrExist] where the name is taken.
func (d *Dir) Create(name string) (path string, err error) {
	path = d.Path(name)
	if err := d.create(name, path); err != nil {
		return "", &Error{Op: "create", Path: path, Err: err}
	}
	return path, nil
}

func (d *Dir) create(name, path string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := d.prepare(); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return cause(err)
	}
	if err := errors.Join(f.Close(), pin(path)); err != nil {
		return errors.Join(err, cause(os.Remove(path)))
	}
	return nil
}

// prepare makes the directory and binds it over itself, unless that is done.
func (d *Dir) prepare() error {
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

// Remove removes a namespace, or what a program that was killed has left of it. The namespace goes once no process is in
// it. An absent name is success.
func (d *Dir) Remove(name string) error {
	path := d.Path(name)
	err := checkName(name)
	if err == nil {
		err = unpin(path)
	}
	if err == nil {
		err = cause(os.Remove(path))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &Error{Op: "remove", Path: path, Err: err}
	}
	return nil
}

// Names returns the names of what is in the directory, sorted. A directory that does not exist has none.
func (d *Dir) Names() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{Op: "list", Path: d.path, Err: cause(err)}
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() && checkName(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Pinned reports whether there is a namespace of this name. After the machine has been started anew there is none.
func (d *Dir) Pinned(name string) bool { return checkName(name) == nil && pinned(d.Path(name)) }

// maxName is the most bytes that a name may have.
const maxName = 200

// checkName wants a name that stays in the directory and is not hidden.
func checkName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("a name has 1 to %d bytes, not %d", maxName, len(name))
	case strings.HasPrefix(name, ".") || strings.ContainsAny(name, "/\\\x00"):
		return fmt.Errorf("name %q begins with a dot or has a separator", name)
	}
	return nil
}

// cause strips the path from an error of package os, as it stands before it anyway.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}
