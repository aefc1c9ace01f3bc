// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package atomicwriter

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/internal/rmtree"
)

// writer is one write into a directory.
type writer struct {
	path    string // of the directory
	dir     int
	entries []entry // the payload
	opts    Options
	buf     []byte // for what is read
	// before is called with the name of each system call that changes something, before it is made, and may fail it; tests.
	before func(call string) error
}

func write(path string, entries []entry, o Options, before func(call string) error) (changed bool, err error) {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(dir)
	w := &writer{path: path, dir: dir, entries: entries, opts: o, buf: make([]byte, bufferSize(entries)), before: before}
	changed, err = w.write()
	if err != nil {
		err = fmt.Errorf("write payload into %s: %w", path, err)
	}
	return changed, err
}

// write is the protocol.
func (w *writer) write() (changed bool, err error) {
	found, err := w.scan()
	if err != nil {
		return false, err
	}
	same := found.current != "" && w.holds(found.current)
	removed := w.removeDebris(found)
	if same {
		return false, errors.Join(removed, w.link(found), w.unlink(found))
	}
	if err := w.publish(); err != nil {
		return false, err
	}
	err = errors.Join(removed, w.link(found), w.unlink(found))
	if found.current != "" {
		err = errors.Join(err, w.removeTree(found.current))
	}
	return true, err
}

// removeDebris removes what a writer that was killed has left, which also frees its space for the new version.
func (w *writer) removeDebris(found *listing) error {
	var errs []error
	for _, name := range found.debris {
		errs = append(errs, w.removeTree(name))
	}
	return errors.Join(errs...)
}

// publish writes a new version and makes it the current one, or leaves everything as it was.
func (w *writer) publish() error {
	name, err := w.newVersion()
	if err != nil {
		return err
	}
	if err = w.fill(name); err == nil {
		err = w.exchange(name)
	}
	if err == nil {
		return nil
	}
	// What cannot be removed now is debris for the next write.
	_ = unix.Unlinkat(w.dir, nextName, 0)
	_ = rmtree.Remove(filepath.Join(w.path, name))
	return err
}

// newVersion makes the directory of a version, which nobody else may enter yet.
func (w *writer) newVersion() (name string, err error) {
	prefix := time.Now().UTC().Format(versionLayout)
	for range 100 {
		name = prefix + strconv.FormatUint(uint64(rand.Uint32()), 10)
		if err = w.mkdir(w.dir, name, 0o700); !errors.Is(err, unix.EEXIST) {
			return name, err
		}
	}
	return "", err
}

// fill writes the payload into a version.
func (w *writer) fill(name string) error {
	version, err := openDir(w.dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(version)
	if err := w.fillDir(version, w.entries); err != nil {
		return err
	}
	if w.opts.SetPerms == nil {
		return nil
	}
	if err := w.opts.SetPerms(filepath.Join(w.path, name)); err != nil {
		return fmt.Errorf("set permissions: %w", err)
	}
	return nil
}

// fillDir writes files and directories into an empty directory, and lets others enter it then. Its depth is that of the
// payload.
func (w *writer) fillDir(dir int, entries []entry) error {
	for i := range entries {
		e := &entries[i]
		if e.file != nil {
			if err := w.writeFile(dir, e); err != nil {
				return fmt.Errorf("file %q: %w", e.name, err)
			}
			continue
		}
		if err := w.mkdir(dir, e.name, 0o755); err != nil {
			return err
		}
		child, err := openDir(dir, e.name)
		if err != nil {
			return err
		}
		err = w.fillDir(child, e.children)
		_ = unix.Close(child)
		if err != nil {
			return err
		}
	}
	return w.setMode(dir, 0o755)
}

// exchange makes a version the current one.
func (w *writer) exchange(name string) error {
	if err := w.symlink(name, nextName); err != nil {
		return err
	}
	return w.rename(nextName, dataName)
}

// link makes the links to the payload that are not there.
func (w *writer) link(found *listing) error {
	for i := range w.entries {
		e := &w.entries[i]
		if found.present[i] {
			continue
		}
		switch err := w.symlink(dataName+"/"+e.name, e.name); {
		case errors.Is(err, unix.EEXIST):
			continue
		case err != nil:
			return err
		}
		if e.owner != nil {
			if err := w.chownLink(e.name, *e.owner); err != nil {
				return err
			}
		}
	}
	return nil
}

// unlink removes the links to what is in the payload no more.
func (w *writer) unlink(found *listing) error {
	var errs []error
	for _, name := range found.others {
		if target, ok := readLink(w.dir, name, w.buf); ok && target == dataName+"/"+name {
			errs = append(errs, w.removeLink(name))
		}
	}
	return errors.Join(errs...)
}
