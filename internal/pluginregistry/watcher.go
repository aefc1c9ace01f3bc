// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pluginregistry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed81659283/nodeagent/internal/runonce"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Plugin is the information that a plugin returns from GetInfo.
type Plugin struct {
	Type     string // plugin type, such as "CSIPlugin"
	Name     string // plugin name, such as "csi.example"
	Endpoint string // absolute path of the socket with the plugin's own service
	Socket   string // path of the registration socket
	Versions []string
}

// Handler registers plugins of one type.
type Handler interface {
	// Validate returns the reason why a plugin cannot be registered, or nil. It must return quickly.
	Validate(p Plugin) error
	// Register registers a plugin. After an error the plugin must not be registered.
	Register(ctx context.Context, p Plugin) error
	// Deregister removes a registered plugin.
	Deregister(ctx context.Context, p Plugin)
}

// Options configure a [Watcher].
type Options struct {
	Dir      string             // such as /var/lib/kubelet/plugins_registry; created if missing
	Handlers map[string]Handler // by plugin type
	// RefuseOthers sends an error to plugins whose type has no handler. Otherwise they are ignored.
	RefuseOthers bool
	Component    string       // component that owns Run in logs, such as "csi.Plugin"; empty: the watcher itself
	Logger       *slog.Logger // nil discards
}

// Periods of reading the directory.
const (
	settleDelay  = 100 * time.Millisecond // after a change
	resyncPeriod = 10 * time.Second       // without a reported change
	pollPeriod   = time.Second            // if the kernel does not report changes
)

// Watcher registers the plugins of a node. Use [New].
type Watcher struct {
	opts  Options
	guard runonce.Guard

	// The fields below are used by Run only.
	state     sockets
	cancels   map[string]context.CancelFunc // cancels running registrations, by path
	ended     chan stepResult
	lastError string // last logged error of the directory
}

// stepResult is the outcome of a finished registration or deregistration.
type stepResult struct {
	path   string
	plugin Plugin
	err    error
}

// New returns a watcher with opts, and starts nothing; call [Watcher.Run]. If an option is invalid, the error names the
// option.
func New(opts Options) (*Watcher, error) {
	if !filepath.IsAbs(opts.Dir) {
		return nil, fmt.Errorf("pluginregistry: field Dir: %q is no absolute path", opts.Dir)
	}
	if len(opts.Handlers) == 0 {
		return nil, errors.New("pluginregistry: field Handlers is empty")
	}
	for kind, h := range opts.Handlers {
		if h == nil {
			return nil, fmt.Errorf("pluginregistry: field Handlers: %s is nil", kind)
		}
	}
	opts.Dir = filepath.Clean(opts.Dir)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{opts: opts, state: sockets{}, cancels: map[string]context.CancelFunc{}, ended: make(chan stepResult)}
	w.guard.Require(cmp.Or(opts.Component, "pluginregistry.Watcher"), opts.Logger, nil)
	return w, nil
}

// Run registers and deregisters plugins until ctx ends. It must be called only once.
func (w *Watcher) Run(ctx context.Context) error {
	if err := w.guard.Begin(); err != nil {
		return fmt.Errorf("pluginregistry: %w", err)
	}
	defer w.guard.End()
	if err := os.MkdirAll(w.opts.Dir, 0o750); err != nil {
		return fmt.Errorf("pluginregistry: %w", err)
	}
	changes, err := fsnotify.NewWatcher()
	if err != nil {
		w.opts.Logger.Warn("plugin directory is not watched", "dir", w.opts.Dir, "error", err)
		changes = nil
	} else {
		defer changes.Close()
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.loop(ctx, &wg, changes)
	return nil
}

// loop scans the plugin directory periodically and after changes, and starts due registrations and deregistrations in
// goroutines. changes may be nil.
func (w *Watcher) loop(ctx context.Context, wg *sync.WaitGroup, changes *fsnotify.Watcher) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	period := pollPeriod
	if changes != nil {
		events, failures, period = changes.Events, changes.Errors, resyncPeriod
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var look time.Time // next read of the directory; in the past at first
	soon := func() {
		if at := time.Now().Add(settleDelay); at.Before(look) {
			look = at
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			soon()
		case <-failures: // events were lost
			soon()
		case e := <-w.ended:
			w.finishStep(e)
		case <-timer.C:
		}
		if now := time.Now(); !now.Before(look) {
			w.readDir(changes, now)
			look = now.Add(period)
		}
		wake := sleep.Earlier(look, w.startSteps(ctx, wg))
		timer.Reset(max(time.Until(wake), 0))
	}
}

// readDir scans the plugin directory and stores its sockets.
func (w *Watcher) readDir(changes *fsnotify.Watcher, now time.Time) {
	found, dirs, err := scanDir(w.opts.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist): // the directory was removed
		err = os.MkdirAll(w.opts.Dir, 0o750)
		dirs = []string{w.opts.Dir}
	case err != nil:
		found = w.keepExisting(found) // omitted sockets may still exist
	}
	for _, dir := range dirs {
		if changes != nil {
			// A new socket there then causes an event.
			_ = changes.Add(dir) // if it was removed, its parent has changed
		}
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != w.lastError && said != "" {
		w.opts.Logger.Warn("plugin directory", "dir", w.opts.Dir, "error", said)
	}
	w.lastError = said
	w.state.setFound(found, now)
}

// keepExisting adds the sockets of the previous scan that still exist, after an incomplete scan.
func (w *Watcher) keepExisting(found map[string]socketID) map[string]socketID {
	all := map[string]socketID{}
	for path, k := range w.state {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			all[path] = k.current
		}
	}
	maps.Copy(all, found)
	return all
}

// startSteps starts due registrations and deregistrations in goroutines of wg, and returns the time of the next or zero.
func (w *Watcher) startSteps(ctx context.Context, wg *sync.WaitGroup) time.Time {
	actions, wake := w.state.planSteps(time.Now())
	for _, a := range actions {
		k := w.state[a.path]
		k.startStep(a.step)
		switch a.step {
		case cancel:
			w.cancels[a.path]()
		case register:
			opCtx, cancel := context.WithCancel(ctx)
			w.cancels[a.path] = cancel
			wg.Go(func() { w.sendResult(ctx, w.runRegistration(opCtx, a.path)) })
		case deregister:
			p := k.plugin
			w.opts.Logger.Info("plugin was removed", "type", p.Type, "name", p.Name, "socket", p.Socket)
			wg.Go(func() {
				w.opts.Handlers[p.Type].Deregister(ctx, p)
				w.sendResult(ctx, stepResult{path: a.path})
			})
		}
	}
	return wake
}

func (w *Watcher) runRegistration(ctx context.Context, path string) stepResult {
	p, err := w.registerPlugin(ctx, path)
	return stepResult{path, p, err}
}

// sendResult sends the result of a step to the loop of Run. If ctx has ended, because Run is stopping, it may drop the
// result.
func (w *Watcher) sendResult(ctx context.Context, res stepResult) {
	select {
	case w.ended <- res:
	case <-ctx.Done():
	}
}

// finishStep stores and logs the result of a step that has returned.
func (w *Watcher) finishStep(res stepResult) {
	k := w.state[res.path]
	if stop := w.cancels[res.path]; stop != nil {
		stop()
		delete(w.cancels, res.path)
	}
	registering, ignored := k.running == register, errors.Is(res.err, errIgnored)
	if ignored {
		res.err = nil
	}
	canceled := k.canceled
	k.finishStep(res.plugin, ignored, res.err, time.Now())
	switch {
	case canceled || !registering:
	case res.err != nil:
		w.opts.Logger.Warn("plugin is not registered", "socket", res.path, "failures", k.failures, "error", res.err)
	case ignored:
		w.opts.Logger.Debug("plugin type has no handler", "type", res.plugin.Type, "socket", res.path)
	default:
		w.opts.Logger.Info("plugin is registered", "type", res.plugin.Type, "name", res.plugin.Name, "endpoint", res.plugin.Endpoint)
	}
}
