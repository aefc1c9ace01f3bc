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

// writer is the state of one call of [Write].
type writer struct {
	path    string // path of the directory
	dir     int
	entries []entry // the payload
	opts    Options
	buf     []byte // for reading directories and files
	// before is called with the name of each system call that changes the directory, before that call. Its error makes the
	// call fail. For tests.
	before func(call string) error
}

func writePayload(path string, entries []entry, opts Options, before func(call string) error) (changed bool, err error) {
	dir, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(dir)
	w := &writer{path: path, dir: dir, entries: entries, opts: opts, buf: make([]byte, bufferSize(entries)), before: before}
	changed, err = w.writeVersion()
	if err != nil {
		err = fmt.Errorf("write payload into %s: %w", path, err)
	}
	return changed, err
}

// writeVersion writes and publishes a new version of the directory, unless it is unchanged. It then updates links and removes
// old versions.
func (w *writer) writeVersion() (changed bool, err error) {
	found, err := w.listDir()
	if err != nil {
		return false, err
	}
	same := found.current != "" && w.isCurrent(found.current)
	removed := w.removeStale(found)
	if same {
		return false, errors.Join(removed, w.createLinks(found), w.removeStaleLinks(found))
	}
	if err := w.publishVersion(); err != nil {
		return false, err
	}
	err = errors.Join(removed, w.createLinks(found), w.removeStaleLinks(found))
	if found.current != "" {
		err = errors.Join(err, w.removeTree(found.current))
	}
	return true, err
}

// removeStale removes the listed old versions and temporary links, which a killed writer has left. This also frees space for
// the new version.
func (w *writer) removeStale(list *listing) error {
	var errs []error
	for _, name := range list.stale {
		errs = append(errs, w.removeTree(name))
	}
	return errors.Join(errs...)
}

// publishVersion writes the payload to a new version and makes it the current version. After an error it removes the new version.
func (w *writer) publishVersion() error {
	name, err := w.createVersion()
	if err != nil {
		return err
	}
	if err = w.writeFiles(name); err == nil {
		err = w.switchLink(name)
	}
	if err == nil {
		return nil
	}
	// If this fails, the next Write removes the version.
	_ = unix.Unlinkat(w.dir, newDataName, 0)
	_ = rmtree.Remove(filepath.Join(w.path, name))
	return err
}

// createVersion creates an empty directory for a new version and returns its name.
func (w *writer) createVersion() (name string, err error) {
	prefix := time.Now().UTC().Format(versionLayout)
	for range 100 {
		name = prefix + strconv.FormatUint(uint64(rand.Uint32()), 10)
		// Other users cannot read the version before it is complete.
		if err = w.makeDir(w.dir, name, 0o700); !errors.Is(err, unix.EEXIST) {
			return name, err
		}
	}
	return "", err
}

// writeFiles writes the payload to the directory of the new version with this name, and then calls Options.SetPerms.
func (w *writer) writeFiles(name string) error {
	version, err := openDir(w.dir, name)
	if err != nil {
		return err
	}
	defer unix.Close(version)
	if err := w.writeFilesInto(version, w.entries); err != nil {
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

// writeFilesInto writes files and directories to the empty directory with descriptor dir, and then sets the mode of that
// directory to 0755.
func (w *writer) writeFilesInto(dir int, entries []entry) error {
	for i := range entries {
		e := &entries[i]
		if e.file != nil {
			if err := w.writeFile(dir, e); err != nil {
				return fmt.Errorf("file %q: %w", e.name, err)
			}
			continue
		}
		if err := w.makeDir(dir, e.name, 0o755); err != nil {
			return err
		}
		child, err := openDir(dir, e.name)
		if err != nil {
			return err
		}
		err = w.writeFilesInto(child, e.children)
		_ = unix.Close(child)
		if err != nil {
			return err
		}
	}
	return w.setMode(dir, 0o755)
}

// switchLink makes the version with this name the current version: it replaces the link "..data" atomically.
func (w *writer) switchLink(name string) error {
	if err := w.createLink(name, newDataName); err != nil {
		return err
	}
	return w.renameEntry(newDataName, dataName)
}

// createLinks creates the missing links for the top-level files and directories of the payload, through "..data" to the current
// version.
func (w *writer) createLinks(list *listing) error {
	for i := range w.entries {
		e := &w.entries[i]
		if list.present[i] {
			continue
		}
		switch err := w.createLink(dataName+"/"+e.name, e.name); {
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

// removeStaleLinks removes the listed links to files that the payload no longer has.
func (w *writer) removeStaleLinks(list *listing) error {
	var errs []error
	for _, name := range list.otherLinks {
		if target, ok := readLink(w.dir, name, w.buf); ok && target == dataName+"/"+name {
			errs = append(errs, w.removeLink(name))
		}
	}
	return errors.Join(errs...)
}
