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

// Defaults of [DirOptions] and [HTTPOptions]. Period and timeout are those of the kubelet.
const (
	DefaultPeriod    = 20 * time.Second
	DefaultStableFor = 100 * time.Millisecond
	DefaultTimeout   = 10 * time.Second
)

// maxFiles is the maximum number of files in a directory. The kubelet has no limit.
const maxFiles = 10_000

// DirOptions configures a [Dir]. The zero value is valid.
type DirOptions struct {
	NodeName     string        // see Origin; empty: pod names are unchanged
	AllowObjects bool          // pods may refer to config maps, secrets and similar objects; see Origin
	AllowTokens  bool          // pods may use service account tokens; see Origin
	Period       time.Duration // time between scans if the kernel reports no change; zero: DefaultPeriod
	StableFor    time.Duration // time for which a file must be unchanged before it is read; zero: DefaultStableFor
	// MissingIsEmpty means that a path that does not exist has no pods, as in the kubelet. False: its pods are unknown until it was read once, so that
	// the pods of an earlier manifest keep running.
	MissingIsEmpty bool
	Logger         *slog.Logger // nil: no logs
}

// Dir reads static pods from the files of a directory, or from one file. It ignores hidden files, subdirectories and special
// files. It follows symbolic links, as they are used in a mounted config map.
type Dir struct {
	path       string
	configured string // path as the kubelet puts it into the UIDs of pods if it is a file; empty: path
	opts       DirOptions
	guard      runonce.Guard

	files      map[string]*manifest
	removed    map[string]bool // files that the kernel reported as removed since the last scan
	listed     bool            // the path was read at least once
	hasPending bool            // a file has changed too recently to be read
	ignored    map[string]bool
	totalCost  cost // of all files
	lastUpdate Update
}

// NewDir returns a Dir for path, which need not exist yet.
func NewDir(path string, opts DirOptions) *Dir {
	opts.Period = cmp.Or(opts.Period, DefaultPeriod)
	opts.StableFor = cmp.Or(opts.StableFor, DefaultStableFor)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	configured := ""
	if filepath.IsAbs(path) {
		// The kubelet cleans the path of a directory, but not that of a file.
		configured = strings.TrimRight(path, string(filepath.Separator))
	}
	// UIDs depend on the path, and must not depend on the working directory.
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	d := &Dir{path: path, configured: configured, opts: opts, files: make(map[string]*manifest), removed: make(map[string]bool), ignored: make(map[string]bool)}
	d.guard.Require("source.Dir", opts.Logger, nil)
	return d
}

// Run calls sink(update) with the pods of the directory after the first scan and after each change. It returns nil when ctx
// ends. It returns an error at once if sink is nil or Run was called before.
func (d *Dir) Run(ctx context.Context, sink func(Update)) error {
	if sink == nil {
		return errNoSink
	}
	if err := d.guard.Begin(); err != nil {
		return fmt.Errorf("source.Dir: %w", err)
	}
	defer d.guard.End()
	w := newWatch(d.path, d.opts.Period, d.opts.Logger)
	defer w.closeWatch()
	delay := d.opts.StableFor
	for first := true; ; first = false {
		// Renew the watch first, so that no change is missed between watch and scan.
		w.renewWatch(time.Now())
		last := d.lastUpdate
		d.recordRemoved(w.takeRemoved())
		if u := d.scanFiles(time.Now()); first || !u.isEqual(last) {
			sink(u)
		}
		// This wait limits the number of scans per second. While files keep changing, scans become rarer, down to one per second.
		if !waitOrWake(ctx, delay, nil) {
			return nil
		}
		if d.hasPending {
			delay = backoff.Policy{First: d.opts.StableFor, Max: max(time.Second, d.opts.StableFor)}.Next(delay)
			continue
		}
		delay = d.opts.StableFor
		if !waitOrWake(ctx, w.nextScanDelay(time.Now()), w.changed) {
			return nil
		}
	}
}

// Scan reads the directory once and returns its pods. It does not read a file that has changed less than
// DirOptions.StableFor before now; a later Scan reads it. Scan is for programs that do not call Run.
func (d *Dir) Scan(now time.Time) Update {
	d.guard.Spare()
	return d.scanFiles(now)
}

func (d *Dir) scanFiles(now time.Time) Update {
	found, err := d.listFiles()
	if err != nil {
		u := mergeManifests(File, d.files, d.sortedPaths())
		u.Errs = append([]*Error{{File: d.path, Err: err}}, u.Errs...)
		u.Incomplete = u.Incomplete || !d.listed && (!d.opts.MissingIsEmpty || !errors.Is(err, fs.ErrNotExist))
		d.hasPending, d.lastUpdate = false, u
		return u
	}
	d.hasPending = false
	changed := !d.listed || len(d.lastUpdate.Errs) > 0
	for _, path := range slices.Sorted(maps.Keys(found)) { // in order: beyond the size limit, the last files are left out
		file, m := found[path], d.files[path]
		if m == nil {
			m = &manifest{}
			d.files[path] = m
		}
		m.missingSince = time.Time{}
		changed = d.dropRemoved(path, m) || changed
		changed = d.readIfChanged(path, file, m, now) || changed
	}
	for path, m := range d.files {
		if _, ok := found[path]; ok {
			continue
		}
		if m.missingSince.IsZero() {
			m.missingSince = now
		}
		// An editor may move a file away for a moment.
		if len(m.entries) > 0 && now.Sub(m.missingSince) < d.opts.StableFor {
			d.hasPending = true
			continue
		}
		d.totalCost = d.totalCost.subtractCost(m.cost)
		delete(d.files, path)
		delete(d.removed, path)
		changed = true
	}
	d.listed = true
	if changed {
		d.lastUpdate = mergeManifests(File, d.files, d.sortedPaths())
	}
	return d.lastUpdate
}

// recordRemoved records the manifests with pods among these paths of removed or renamed files.
func (d *Dir) recordRemoved(paths map[string]bool) {
	for path := range paths {
		if m := d.files[path]; m != nil && len(m.entries) > 0 {
			d.removed[path] = true
		}
	}
}

// dropRemoved reports whether the manifest at path was removed and created again since the last scan, and then removes its pods.
// Source: consumeWatchEvent in pkg/kubelet/config/file_linux.go.
func (d *Dir) dropRemoved(path string, m *manifest) bool {
	if !d.removed[path] {
		return false
	}
	delete(d.removed, path)
	d.totalCost = d.totalCost.subtractCost(m.cost)
	// Its pods are restarted, as in the kubelet, which handles each file event separately.
	*m = manifest{everValid: m.everValid}
	return true
}

func (d *Dir) sortedPaths() []string { return slices.Sorted(maps.Keys(d.files)) }

// manifestFile is the result of stat for a manifest file: either its info or an error.
type manifestFile struct {
	info os.FileInfo
	err  error
}

// listFiles returns the manifest files by path.
func (d *Dir) listFiles() (map[string]manifestFile, error) {
	info, err := os.Stat(d.path)
	if err != nil {
		return nil, fmt.Errorf("find manifests: %w", stripPath(err))
	}
	if info.Mode().IsRegular() {
		return map[string]manifestFile{d.path: {info: info}}, nil
	}
	entries, err := readDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", stripPath(err))
	}
	found, ignored := make(map[string]manifestFile, len(entries)), make(map[string]bool)
	defer func() { d.ignored = ignored }()
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(d.path, e.Name())
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && e.Type() != fs.ModeSymlink:
			// Removed since ReadDir.
		case err == nil && !info.Mode().IsRegular():
			d.logIgnored(path, info.Mode())
			ignored[path] = true
		default:
			found[path] = manifestFile{info: info, err: err}
		}
	}
	return found, nil
}

// readDir returns the entries of a directory. It returns an error if there are more than maxFiles.
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

func (d *Dir) logIgnored(path string, mode fs.FileMode) {
	if !d.ignored[path] {
		d.opts.Logger.Info("Ignoring manifest that is not a regular file", "path", path, "mode", mode.String())
	}
}

// readIfChanged reads the manifest at path into m if the file has changed and has then been stable for DirOptions.StableFor. It
// returns false if the file is unchanged.
func (d *Dir) readIfChanged(path string, file manifestFile, m *manifest, now time.Time) bool {
	if file.err != nil {
		m.setReadError(path, stripPath(file.err))
		return true
	}
	info := file.info
	if isSameVersion(m.read, info) {
		return false
	}
	if !isSameVersion(m.seen, info) {
		m.seen, m.seenSince = info, now
		// A file that is older than the start of the agent is stable.
		if !d.listed && now.Sub(info.ModTime()) >= d.opts.StableFor {
			m.seenSince = info.ModTime()
		}
	}
	if now.Sub(m.seenSince) < d.opts.StableFor {
		d.hasPending = true
		return true
	}
	data, err := readFile(path, info)
	switch {
	case errors.Is(err, errChanged), errors.Is(err, fs.ErrNotExist): // changed or removed since it was listed
		d.hasPending = true
	case err != nil:
		m.setReadError(path, stripPath(err))
	default:
		origin := Origin{Source: File, Location: path, NodeName: d.opts.NodeName, AllowObjects: d.opts.AllowObjects, AllowTokens: d.opts.AllowTokens, Seen: now}
		if path == d.path {
			origin.configured = d.configured
		}
		others := d.totalCost.subtractCost(m.cost)
		if m.read = nil; m.applyContent(data, origin, maxCost().subtractCost(others)) {
			m.read = info // otherwise it is read again: other files may become smaller
		}
		d.totalCost = others.addCost(m.cost)
	}
	return true
}

// errNoSink is the error of Run if sink is nil.
var errNoSink = errors.New("source: Run: sink is nil: pass a function that calls lifecycle.Reconciler.Set")

// errChanged is the error of reading a file that changed meanwhile.
var errChanged = errors.New("the file changed while it was read")

// readFile returns the content of a file of at most maxSize bytes. If the file has changed since info was read, it returns
// errChanged.
func readFile(path string, info os.FileInfo) ([]byte, error) {
	// O_NONBLOCK: the path may have become a named pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size() > maxSize {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d", info.Size(), maxSize)
	}
	// Read only the size in info: some kernel files have size zero and block, or never end.
	data := make([]byte, info.Size())
	_, err = io.ReadFull(f, data)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, err
	}
	if after, statErr := f.Stat(); err != nil || statErr != nil || !isSameVersion(info, after) {
		return nil, errChanged
	}
	return data, nil
}

// isSameVersion reports whether a and b describe the same file with the same modification time and size. If a is nil, the
// result is false.
func isSameVersion(a, b os.FileInfo) bool {
	return a != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// stripPath removes the path from an error of package os, because the message of the caller already contains it.
func stripPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", e.Op, e.Err)
	}
	return err
}

// waitOrWake waits for the duration d or until wake receives a value, and returns true. If ctx ends first, it returns false.
func waitOrWake(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
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
