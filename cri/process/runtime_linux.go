// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/shim"
	"github.com/seed81659283/nodeagent/internal/dirlock"
)

// The layout of the state directory. A directory whose name begins with the prefix is being made or removed, and
// of no account after a crash.
const (
	rootLock      = "lock"
	sandboxesDir  = "sandboxes"
	containersDir = "containers"
	unfinished    = "."
	recordFile    = "record.json"
)

// openTime is how long shims that are just starting their process are waited for.
const openTime = 5 * time.Second

var errClosed = errors.New("the runtime is closed")

// Runtime runs containers as processes of this machine. It has no goroutine of its own.
type Runtime struct {
	root    string
	options Options
	log     *slog.Logger
	lock    *dirlock.Lock

	mu         sync.Mutex // guards what follows, and what sandboxes and containers say is guarded by it
	closed     bool
	names      map[string]bool // taken by sandboxes and containers, and by those being created
	sandboxes  []*sandbox      // in order of creation
	containers []*container    // in order of creation
	pending    map[string]bool // IDs of sandboxes whose network is being set up
	retained   bool            // networks that are left over have been torn down
	retaining  chan struct{}   // closed when that is over; nil: nobody does it now
	streams    map[*stream]bool
}

var (
	_ cri.Runtime        = (*Runtime)(nil)
	_ cri.PodLister      = (*Runtime)(nil)
	_ cri.EventStreamer  = (*Runtime)(nil)
	_ cri.Execer         = (*Runtime)(nil)
	_ cri.LogReopener    = (*Runtime)(nil)
	_ cri.StatsLister    = (*Runtime)(nil)
	_ cri.StatusReporter = (*Runtime)(nil)
	_ cri.Images         = (*Runtime)(nil)
	_ cri.Puller         = (*Runtime)(nil)
)

// mainCalled is true once this program would have become a shim if it had been started as one.
var mainCalled atomic.Bool //nolint:gochecknoglobals // it says what the program does, of which there is one

// errNoMain is what becomes of a program that would start itself, instead of a shim, for each container.
var errNoMain = errors.New("this program cannot be executed as the shim of a container: " +
	"call process.Main first in main, and in TestMain of tests")

// Main makes the program a shim when it was started as one, and then does not return; otherwise it does nothing.
// Every program that opens a [Runtime] must call it first in main, and every test binary first in TestMain: without
// that [Open] fails. A program that was started as a shim and has changed [os.Args] before the call ends with code 1.
func Main() {
	if len(os.Args) == 2 && os.Args[0] == shim.Name {
		os.Exit(shim.Main(os.Args[1]))
	}
	if shim.Marked() {
		fmt.Fprintf(os.Stderr, "started as a shim, but os.Args is %.128q: call process.Main before what changes it\n", os.Args)
		os.Exit(1)
	}
	mainCalled.Store(true)
}

// Open opens the runtime whose state is in the directory root, and makes the directory where it is missing.
// Containers that an earlier agent started there are found again, running or exited. Only one agent at a time may
// have a root open. The error says so where the program has not called [Main]: nothing was touched then.
func Open(root string, o Options) (*Runtime, error) {
	root, err := filepath.Abs(root)
	if err == nil && !mainCalled.Load() {
		err = errNoMain
	}
	if err == nil {
		err = o.check(os.Geteuid())
	}
	if err != nil {
		return nil, fmt.Errorf("open process runtime: %w", err)
	}
	r := &Runtime{
		root:    root,
		options: o,
		log:     o.logger(),
		names:   make(map[string]bool),
		pending: make(map[string]bool),
		streams: make(map[*stream]bool),
	}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("open process runtime %s: %w", root, err)
	}
	return r, nil
}

func (r *Runtime) open() error {
	for _, dir := range []string{"", sandboxesDir, containersDir} {
		if err := os.MkdirAll(filepath.Join(r.root, dir), 0o700); err != nil {
			return err
		}
	}
	lock, err := dirlock.Take(r.root, rootLock)
	if err != nil {
		return err
	}
	if err := r.load(); err != nil {
		return errors.Join(err, lock.Release())
	}
	r.lock = lock
	return nil
}

// load reads the state that an earlier agent left.
func (r *Runtime) load() error {
	deadline := time.Now().Add(openTime)
	err := r.eachDir(sandboxesDir, func(dir string) error {
		s, err := loadSandbox(dir)
		if err == nil {
			r.names[s.name()] = true
			r.sandboxes = append(r.sandboxes, s)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = r.eachDir(containersDir, func(dir string) error {
		c, err := r.loadContainer(dir, deadline)
		if err == nil {
			r.names[c.name()] = true
			r.containers = append(r.containers, c)
		}
		return err
	})
	slices.SortStableFunc(r.sandboxes, func(a, b *sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	slices.SortStableFunc(r.containers, func(a, b *container) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return err
}

// eachDir calls load for every directory of a kind, and discards those that are unfinished or have no record. What has
// another name than this package gives is somebody else's, and left alone.
func (r *Runtime) eachDir(kind string, load func(dir string) error) error {
	entries, err := os.ReadDir(filepath.Join(r.root, kind))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := filepath.Join(r.root, kind, entry.Name())
		if !isID(strings.TrimPrefix(entry.Name(), unfinished)) {
			r.log.Warn("leaving alone what is not of this runtime", "path", dir)
			continue
		}
		err := errors.New("made or removed only in part")
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), unfinished) {
			err = load(dir)
		}
		// A file that is there but cannot be read is the machine's trouble, and no reason to forget what runs.
		if shim.IsTrouble(err) {
			return err
		}
		if err != nil {
			r.log.Warn("discarding unusable state", "path", dir, "error", err)
			if err := discard(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// discard removes a directory whose record is lost, and kills what still runs for it.
func discard(dir string) error {
	handle, err := shim.Find(dir, time.Now())
	if err != nil {
		handle, err = shim.Search(dir)
	}
	if err != nil {
		return err
	}
	if handle != nil {
		if err := handle.End(); err != nil {
			return err
		}
		_, _ = shim.Outcome(dir, mark(filepath.Base(dir)))
	}
	return os.RemoveAll(dir)
}

// Close gives the root back for another agent and ends event streams. Containers go on running; their shims, when
// they end, stay zombies of this process until it ends too. Other calls must have returned; later ones fail.
func (r *Runtime) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	for _, c := range r.containers {
		if c.shim != nil {
			c.shim.Close()
			c.shim = nil
		}
	}
	for s := range r.streams {
		s.wake()
	}
	return r.lock.Release()
}

// makeDir makes the directory of an object in one step: after a crash it is there with all its files, or not.
func (r *Runtime) makeDir(kind, id string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(r.root, kind, id)
	tmp := filepath.Join(r.root, kind, unfinished+id)
	err := os.Mkdir(tmp, 0o700)
	if err == nil {
		err = fill(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(tmp))
	}
	return dir, nil
}

// removeDir removes the directory of an object; after a crash it is there or not, but not in part.
func removeDir(dir string) error {
	tmp := filepath.Join(filepath.Dir(dir), unfinished+filepath.Base(dir))
	if err := os.Rename(dir, tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(tmp)
}

// reserve takes a name for an object that is being created.
func (r *Runtime) reserve(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	if r.names[name] {
		return fmt.Errorf("name %q: %w", name, cri.ErrAlreadyExists)
	}
	r.names[name] = true
	return nil
}

func (r *Runtime) release(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, name)
}

// idSize is the length of an ID before it is written in hexadecimal digits.
const idSize = 16

// newID returns an ID that no other sandbox or container has.
func newID() string {
	var id [idSize]byte
	_, _ = rand.Read(id[:]) // never fails, as package rand says
	return hex.EncodeToString(id[:])
}

// isID reports whether newID can have made a name.
func isID(name string) bool {
	id, err := hex.DecodeString(name)
	return err == nil && len(id) == idSize && name == hex.EncodeToString(id)
}

// fail names the call and the object in an error.
func fail(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &cri.Error{Op: op, ID: id, Err: err}
}
