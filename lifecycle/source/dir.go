// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/internal/backoff"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// The defaults of [DirOptions] and [HTTPOptions]. The period and the timeout are the kubelet's.
const (
	DefaultPeriod  = 20 * time.Second
	DefaultSettle  = 100 * time.Millisecond
	DefaultTimeout = 10 * time.Second
)

// maxFiles is the most names that a directory may have. It is ours: the kubelet has no bound.
const maxFiles = 10_000

// DirOptions tunes a [Dir]. The zero value is for production.
type DirOptions struct {
	NodeName string        // see Origin; empty: pods keep their names
	Objects  bool          // see Origin
	Tokens   bool          // see Origin
	Period   time.Duration // between looks where the kernel reports no change; zero: DefaultPeriod
	Settle   time.Duration // how long a file holds still before its change counts; zero: DefaultSettle
	Logger   *slog.Logger  // nil discards
}

// Dir reads pods from the files of a directory, or from a single file. Files whose names begin with a dot,
// directories and special files are left alone. Links to files are followed, so a mounted config map works.
type Dir struct {
	path  string
	opts  DirOptions
	guard runonce.Guard

	files   map[string]*manifest
	removed map[string]bool // files that the kernel has reported as removed, until a scan has seen what became of them
	listed  bool            // the path has been read since the start
	pending bool            // something has changed and not held still yet
	ignored map[string]bool
	kept    cost // of all files
	last    Update
}

// NewDir returns a Dir for a path, which need not exist yet.
func NewDir(path string, o DirOptions) *Dir {
	o.Period = cmp.Or(o.Period, DefaultPeriod)
	o.Settle = cmp.Or(o.Settle, DefaultSettle)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	// UIDs are made of the path, so they should not depend on the working directory.
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	d := &Dir{path: path, opts: o, files: make(map[string]*manifest), removed: make(map[string]bool), ignored: make(map[string]bool)}
	d.guard.Require("source.Dir", o.Logger, nil)
	return d
}

// Run calls sink with the state of the directory, first at once and then after each change, until ctx ends. It
// returns nil. It returns an error at once without a sink, and when it is called a second time.
func (d *Dir) Run(ctx context.Context, sink func(Update)) error {
	if sink == nil {
		return errNoSink
	}
	if err := d.guard.Begin(); err != nil {
		return fmt.Errorf("source.Dir: %w", err)
	}
	defer d.guard.End()
	w := newWatch(d.path, d.opts.Period, d.opts.Logger)
	defer w.close()
	delay := d.opts.Settle
	for first := true; ; first = false {
		// The watch comes first, so that no change falls between it and the scan.
		w.renew(time.Now())
		last := d.last
		d.noteRemoved(w.takeRemoved())
		if u := d.scan(time.Now()); first || !u.equal(last) {
			sink(u)
		}
		// This pause limits the scans per second, however many changes the kernel reports. What never holds still
		// is looked at ever more rarely, up to once a second.
		if !pause(ctx, delay, nil) {
			return nil
		}
		if d.pending {
			delay = backoff.Policy{First: d.opts.Settle, Max: max(time.Second, d.opts.Settle)}.Next(delay)
			continue
		}
		delay = d.opts.Settle
		if !pause(ctx, w.untilLook(time.Now()), w.changed) {
			return nil
		}
	}
}

// Scan looks at the directory once and returns its state. Changes that have not held still yet are not in it; a later
// Scan finds them. Run calls it by itself; it is exported for tools that read a directory once, and do not call Run.
func (d *Dir) Scan(now time.Time) Update {
	d.guard.Spare()
	return d.scan(now)
}

func (d *Dir) scan(now time.Time) Update {
	found, err := d.list()
	if err != nil {
		u := merge(File, d.files, d.order())
		u.Errs = append([]*Error{{File: d.path, Err: err}}, u.Errs...)
		u.Incomplete = u.Incomplete || !d.listed
		d.pending, d.last = false, u
		return u
	}
	d.pending = false
	changed := !d.listed || len(d.last.Errs) > 0
	for _, path := range slices.Sorted(maps.Keys(found)) { // the first come first where there is not room for all
		file, m := found[path], d.files[path]
		if m == nil {
			m = &manifest{}
			d.files[path] = m
		}
		m.goneAt = time.Time{}
		changed = d.dropRemoved(path, m) || changed
		changed = d.look(path, file, m, now) || changed
	}
	for path, m := range d.files {
		if _, ok := found[path]; ok {
			continue
		}
		if m.goneAt.IsZero() {
			m.goneAt = now
		}
		// An editor may move a file away for a moment.
		if len(m.entries) > 0 && now.Sub(m.goneAt) < d.opts.Settle {
			d.pending = true
			continue
		}
		d.kept = d.kept.minus(m.cost)
		delete(d.files, path)
		delete(d.removed, path)
		changed = true
	}
	d.listed = true
	if changed {
		d.last = merge(File, d.files, d.order())
	}
	return d.last
}

// noteRemoved records the manifests among files that were removed or renamed away.
func (d *Dir) noteRemoved(paths map[string]bool) {
	for path := range paths {
		if m := d.files[path]; m != nil && len(m.entries) > 0 {
			d.removed[path] = true
		}
	}
}

// dropRemoved takes the pods of a manifest that was removed and is there again out of the set, until the file is read anew, and
// reports whether there were any. So they are restarted, as by the kubelet, which takes each event of the kernel for itself
// (consumeWatchEvent in pkg/kubelet/config/file_linux.go).
func (d *Dir) dropRemoved(path string, m *manifest) bool {
	if !d.removed[path] {
		return false
	}
	delete(d.removed, path)
	d.kept = d.kept.minus(m.cost)
	*m = manifest{known: m.known}
	return true
}

func (d *Dir) order() []string { return slices.Sorted(maps.Keys(d.files)) }

// file is what a path of a manifest leads to: a regular file, or an error.
type file struct {
	info os.FileInfo
	err  error
}

// list returns the manifests by path.
func (d *Dir) list() (map[string]file, error) {
	info, err := os.Stat(d.path)
	if err != nil {
		return nil, fmt.Errorf("look at manifests: %w", cause(err))
	}
	if info.Mode().IsRegular() {
		return map[string]file{d.path: {info: info}}, nil
	}
	entries, err := readDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", cause(err))
	}
	found, ignored := make(map[string]file, len(entries)), make(map[string]bool)
	defer func() { d.ignored = ignored }()
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(d.path, e.Name())
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && e.Type() != fs.ModeSymlink:
			// Removed since it was listed.
		case err == nil && !info.Mode().IsRegular():
			d.ignore(path, info.Mode())
			ignored[path] = true
		default:
			found[path] = file{info: info, err: err}
		}
	}
	return found, nil
}

// readDir returns what is in a directory.
func readDir(path string) ([]fs.DirEntry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(maxFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(entries) > maxFiles {
		return nil, fmt.Errorf("more than %d files", maxFiles)
	}
	return entries, nil
}

func (d *Dir) ignore(path string, mode fs.FileMode) {
	if !d.ignored[path] {
		d.opts.Logger.Info("Ignoring what is not a file among the manifests", "path", path, "mode", mode.String())
	}
}

// look reads a file if it has changed and holds still, and reports whether anything is new.
func (d *Dir) look(path string, f file, m *manifest, now time.Time) bool {
	if f.err != nil {
		m.fail(path, cause(f.err))
		return true
	}
	info := f.info
	if same(m.read, info) {
		return false
	}
	if !same(m.seen, info) {
		m.seen, m.since = info, now
		// A file that was there long before the start need not prove itself.
		if !d.listed && now.Sub(info.ModTime()) >= d.opts.Settle {
			m.since = info.ModTime()
		}
	}
	if now.Sub(m.since) < d.opts.Settle {
		d.pending = true
		return true
	}
	data, err := read(path, info)
	switch {
	case errors.Is(err, errChanged), errors.Is(err, fs.ErrNotExist): // changed or gone since it was listed
		d.pending = true
	case err != nil:
		m.fail(path, cause(err))
	default:
		origin := Origin{Source: File, Location: path, NodeName: d.opts.NodeName, Objects: d.opts.Objects, Tokens: d.opts.Tokens, Seen: now}
		others := d.kept.minus(m.cost)
		if m.read = nil; m.take(data, origin, maxCost().minus(others)) {
			m.read = info // or else again: other files may leave room
		}
		d.kept = others.plus(m.cost)
	}
	return true
}

// errNoSink is returned by the Run of a source that has nowhere to hand its pods to.
var errNoSink = errors.New("source: Run: sink is nil: hand in the function that calls lifecycle.Reconciler.Set")

// errChanged says that a file changed while it was read.
var errChanged = errors.New("the file changed while it was read")

// read returns the content of the file that info describes.
func read(path string, info os.FileInfo) ([]byte, error) {
	// Not to block, should it have become a named pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxSize {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d", info.Size(), maxSize)
	}
	// No more than was there is read: some files of the kernel have no size, and block or never end.
	data := make([]byte, info.Size())
	_, err = io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if after, statErr := f.Stat(); err != nil || statErr != nil || !same(info, after) {
		return nil, errChanged
	}
	return data, nil
}

// same reports whether a file has the same content, as far as can be told without reading it.
func same(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// cause strips the path from an error of package os, as it stands before it anyway.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}

// pause waits for a time, or until wake is ready, and reports whether ctx still holds.
func pause(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-t.C:
	}
	return true
}
