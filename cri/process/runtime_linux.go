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

// The layout of the state directory. A directory whose name has the prefix "." is being created or removed, and is discarded
// after a crash.
const (
	rootLock         = "lock"
	sandboxesDir     = "sandboxes"
	containersDir    = "containers"
	unfinishedPrefix = "."
	recordFile       = "record.json"
)

// openTimeout is how long Open waits for shims that are just starting their process.
const openTimeout = 5 * time.Second

var errClosed = errors.New("the runtime is closed")

// Runtime runs containers as processes of this machine. It has no goroutine of its own.
type Runtime struct {
	root    string
	options Options
	log     *slog.Logger
	lock    *dirlock.Lock

	mu               sync.Mutex // guards the fields below and the changing fields of sandboxes and containers
	closed           bool
	names            map[string]bool // names of sandboxes and containers, including objects being created
	sandboxes        []*sandbox      // in order of creation
	containers       []*container    // in order of creation
	pending          map[string]bool // IDs of sandboxes with a network setup in progress
	networksRetained bool            // Network.Retain has succeeded
	retaining        chan struct{}   // closed when the Retain call in progress returns; nil: there is none
	streams          map[*eventStream]bool
}

var (
	_ cri.Runtime        = (*Runtime)(nil)
	_ cri.PodLister      = (*Runtime)(nil)
	_ cri.EventStreamer  = (*Runtime)(nil)
	_ cri.Execer         = (*Runtime)(nil)
	_ cri.LogReopener    = (*Runtime)(nil)
	_ cri.Updater        = (*Runtime)(nil)
	_ cri.StatsLister    = (*Runtime)(nil)
	_ cri.StatusReporter = (*Runtime)(nil)
	_ cri.Images         = (*Runtime)(nil)
	_ cri.Puller         = (*Runtime)(nil)
)

// mainCalled reports whether this program has called Main, so that it can run as a shim.
var mainCalled atomic.Bool //nolint:gochecknoglobals // a property of the program

// errNoMain is the error for a program that would start itself, instead of a shim, for each container.
var errNoMain = errors.New("this program cannot be executed as the shim of a container: " +
	"call process.Main first in main, and in TestMain of tests")

// Main runs a shim, the process that supervises a container, and exits if this process was started as one; otherwise it does
// nothing. A program that opens a [Runtime] must call it first in main and TestMain, with unmodified [os.Args]: otherwise [Open]
// fails.
func Main() {
	if len(os.Args) == 2 && os.Args[0] == shim.Name {
		os.Exit(shim.Main(os.Args[1]))
	}
	if shim.IsShimProcess() {
		fmt.Fprintf(os.Stderr, "started as a shim, but os.Args is %.128q: call process.Main before the program modifies os.Args\n", os.Args)
		os.Exit(1)
	}
	mainCalled.Store(true)
}

// Open opens the runtime with its state in the directory root, which it creates if necessary. It finds the containers that a
// previous process has started there. Only one process can open a directory. Without a call of [Main], Open returns an error and
// changes nothing.
func Open(root string, opts Options) (*Runtime, error) {
	root, err := filepath.Abs(root)
	if err == nil && !mainCalled.Load() {
		err = errNoMain
	}
	if err == nil {
		err = opts.checkUser(os.Geteuid())
	}
	if err != nil {
		return nil, fmt.Errorf("open process runtime: %w", err)
	}
	r := &Runtime{
		root:    root,
		options: opts,
		log:     opts.logger(),
		names:   make(map[string]bool),
		pending: make(map[string]bool),
		streams: make(map[*eventStream]bool),
	}
	if err := r.openRoot(); err != nil {
		return nil, fmt.Errorf("open process runtime %s: %w", root, err)
	}
	return r, nil
}

func (r *Runtime) openRoot() error {
	for _, dir := range []string{"", sandboxesDir, containersDir} {
		if err := os.MkdirAll(filepath.Join(r.root, dir), 0o700); err != nil {
			return err
		}
	}
	lock, err := dirlock.Acquire(r.root, rootLock)
	if err != nil {
		return err
	}
	if err := r.loadState(); err != nil {
		return errors.Join(err, lock.Release())
	}
	r.lock = lock
	return nil
}

// loadState loads the records of sandboxes and containers that a previous agent process has written, and finds the running shims.
func (r *Runtime) loadState() error {
	deadline := time.Now().Add(openTimeout)
	err := r.loadDirs(sandboxesDir, func(dir string) error {
		s, err := loadSandbox(dir)
		if err == nil {
			r.names[s.uniqueName()] = true
			r.sandboxes = append(r.sandboxes, s)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = r.loadDirs(containersDir, func(dir string) error {
		c, err := r.loadContainer(dir, deadline)
		if err == nil {
			r.names[c.uniqueName()] = true
			r.containers = append(r.containers, c)
		}
		return err
	})
	slices.SortStableFunc(r.sandboxes, func(a, b *sandbox) int { return a.CreatedAt.Compare(b.CreatedAt) })
	slices.SortStableFunc(r.containers, func(a, b *container) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return err
}

// loadDirs calls load for the directory of each sandbox or container, and removes directories that cannot be loaded.
func (r *Runtime) loadDirs(kind string, load func(dir string) error) error {
	entries, err := os.ReadDir(filepath.Join(r.root, kind))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		dir := filepath.Join(r.root, kind, entry.Name())
		if !isID(strings.TrimPrefix(entry.Name(), unfinishedPrefix)) {
			r.log.Warn("ignoring path that is not of this runtime", "path", dir)
			continue
		}
		err := errors.New("made or removed only in part")
		if entry.IsDir() && !strings.HasPrefix(entry.Name(), unfinishedPrefix) {
			err = load(dir)
		}
		// A file that cannot be read now is no reason to remove a running container.
		if shim.IsReadFailure(err) {
			return err
		}
		if err != nil {
			r.log.Warn("discarding unusable state", "path", dir, "error", err)
			if err := removeUnusable(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeUnusable removes the directory of a container or sandbox that has no valid record. First it kills the remaining
// processes.
func removeUnusable(dir string) error {
	handle, err := shim.FindShim(dir, time.Now())
	if err != nil {
		handle, err = shim.SearchShim(dir)
	}
	if err != nil {
		return err
	}
	if handle != nil {
		if err := handle.KillAndClose(); err != nil {
			return err
		}
		_, _ = shim.ReadOutcome(dir, envMark(filepath.Base(dir)))
	}
	return os.RemoveAll(dir)
}

// Close closes the runtime, so that another agent process can open its directory. Event streams end, and containers continue to
// run. Other calls must have returned, and fail afterwards. Shims that exit later stay zombies until this process exits.
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
		s.wakeReader()
	}
	return r.lock.Release()
}

// createDir creates the directory of a sandbox or container atomically: after a crash it has all files or does not exist.
func (r *Runtime) createDir(kind, id string, fill func(dir string) error) (string, error) {
	dir := filepath.Join(r.root, kind, id)
	tmp := filepath.Join(r.root, kind, unfinishedPrefix+id)
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

// removeDir removes the directory of a sandbox or container atomically. After a crash, the directory has all its files or
// does not exist.
func removeDir(dir string) error {
	tmp := filepath.Join(filepath.Dir(dir), unfinishedPrefix+filepath.Base(dir))
	if err := os.Rename(dir, tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.RemoveAll(tmp)
}

// reserveName reserves the name of a sandbox or container that is being created. If the name is in use, the error wraps
// cri.ErrAlreadyExists.
func (r *Runtime) reserveName(name string) error {
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

// releaseName makes a reserved name available again.
func (r *Runtime) releaseName(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.names, name)
}

// idSize is the length of an ID in bytes, before hexadecimal encoding.
const idSize = 16

// newID returns a random ID in hexadecimal form.
func newID() string {
	var id [idSize]byte
	_, _ = rand.Read(id[:]) // never fails, as package rand says
	return hex.EncodeToString(id[:])
}

// isID reports whether name has the form of the IDs of newID.
func isID(name string) bool {
	id, err := hex.DecodeString(name)
	return err == nil && len(id) == idSize && name == hex.EncodeToString(id)
}

// wrapError wraps err in a [cri.Error] with the name of the call and the ID of its sandbox or container. A nil err returns
// nil.
func wrapError(op, id string, err error) error {
	if err == nil {
		return nil
	}
	return &cri.Error{Op: op, ID: id, Err: err}
}
