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

// Plugin is what a plugin says about itself.
type Plugin struct {
	Type     string // such as "CSIPlugin"
	Name     string // such as "csi.example"
	Endpoint string // the socket of the plugin itself, an absolute path
	Socket   string // the one that it was registered by
	Versions []string
}

// Handler registers plugins of one type.
type Handler interface {
	// Validate returns why a plugin cannot be registered. It is quick.
	Validate(p Plugin) error
	// Register registers a plugin. After an error it is as if it had not been called.
	Register(ctx context.Context, p Plugin) error
	// Deregister forgets a plugin that was registered.
	Deregister(ctx context.Context, p Plugin)
}

// Options configure a [Watcher].
type Options struct {
	Dir      string             // such as /var/lib/kubelet/plugins_registry; it is made if it is missing
	Handlers map[string]Handler // by the type of plugins
	// RefuseOthers tells plugins of types without a handler that they are not registered. Otherwise they are left alone.
	RefuseOthers bool
	Component    string       // of which Run is that of the watcher, such as "csi.Plugin"; empty: the watcher itself
	Logger       *slog.Logger // nil discards
}

// How often the directory is read.
const (
	settle   = 100 * time.Millisecond // after a change
	safety   = 10 * time.Second       // though nothing seems to have changed
	unwarned = time.Second            // where the kernel says nothing of changes
)

// Watcher registers the plugins of a node. Make one with [New].
type Watcher struct {
	opts  Options
	guard runonce.Guard

	// What follows belongs to Run.
	state   state
	cancels map[string]context.CancelFunc // of the registrations under way
	ended   chan ended
	said    string // the error of the directory that was logged last
}

// ended is what came of a step.
type ended struct {
	path   string
	plugin Plugin
	err    error
}

// New returns a watcher. It starts nothing. An error says which option is invalid.
func New(o Options) (*Watcher, error) {
	if !filepath.IsAbs(o.Dir) {
		return nil, fmt.Errorf("pluginregistry: field Dir: %q is no absolute path", o.Dir)
	}
	if len(o.Handlers) == 0 {
		return nil, errors.New("pluginregistry: field Handlers is empty")
	}
	for kind, h := range o.Handlers {
		if h == nil {
			return nil, fmt.Errorf("pluginregistry: field Handlers: %s is nil", kind)
		}
	}
	o.Dir = filepath.Clean(o.Dir)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Watcher{opts: o, state: state{}, cancels: map[string]context.CancelFunc{}, ended: make(chan ended)}
	w.guard.Require(cmp.Or(o.Component, "pluginregistry.Watcher"), o.Logger, nil)
	return w, nil
}

// Run registers plugins until ctx ends. It is called once.
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

// loop reads the directory when it has changed and does what follows from that.
func (w *Watcher) loop(ctx context.Context, wg *sync.WaitGroup, changes *fsnotify.Watcher) {
	var events <-chan fsnotify.Event
	var failures <-chan error
	period := unwarned
	if changes != nil {
		events, failures, period = changes.Events, changes.Errors, safety
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var look time.Time // when the directory is read; it is in the past at first
	soon := func() {
		if at := time.Now().Add(settle); at.Before(look) {
			look = at
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			soon()
		case <-failures: // the kernel had too much to say
			soon()
		case e := <-w.ended:
			w.end(e)
		case <-timer.C:
		}
		if now := time.Now(); !now.Before(look) {
			w.look(changes, now)
			look = now.Add(period)
		}
		wake := sleep.Earlier(look, w.begin(ctx, wg))
		timer.Reset(max(time.Until(wake), 0))
	}
}

// look reads the directory, and has changes of all directories in it told.
func (w *Watcher) look(changes *fsnotify.Watcher, now time.Time) {
	there, dirs, err := scan(w.opts.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist): // somebody has removed it
		err = os.MkdirAll(w.opts.Dir, 0o750)
		dirs = []string{w.opts.Dir}
	case err != nil:
		there = w.keep(there) // what was left out is not gone
	}
	for _, dir := range dirs {
		if changes != nil {
			_ = changes.Add(dir) // it may be gone by now; then the one above has changed
		}
	}
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != w.said && said != "" {
		w.opts.Logger.Warn("plugin directory", "dir", w.opts.Dir, "error", said)
	}
	w.said = said
	w.state.found(there, now)
}

// keep adds the sockets that were known and still exist.
func (w *Watcher) keep(there map[string]identity) map[string]identity {
	all := map[string]identity{}
	for path, k := range w.state {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			all[path] = k.there
		}
	}
	maps.Copy(all, there)
	return all
}

// begin begins the steps that are due, and returns when the next one is.
func (w *Watcher) begin(ctx context.Context, wg *sync.WaitGroup) time.Time {
	actions, wake := w.state.plan(time.Now())
	for _, a := range actions {
		k := w.state[a.path]
		k.begin(a.step)
		switch a.step {
		case cancel:
			w.cancels[a.path]()
		case register:
			opCtx, cancel := context.WithCancel(ctx)
			w.cancels[a.path] = cancel
			wg.Go(func() { w.tell(ctx, w.registration(opCtx, a.path)) })
		case deregister:
			p := k.plugin
			w.opts.Logger.Info("plugin is gone", "type", p.Type, "name", p.Name, "socket", p.Socket)
			wg.Go(func() {
				w.opts.Handlers[p.Type].Deregister(ctx, p)
				w.tell(ctx, ended{path: a.path})
			})
		}
	}
	return wake
}

func (w *Watcher) registration(ctx context.Context, path string) ended {
	p, err := w.register(ctx, path)
	return ended{path, p, err}
}

// tell hands on what came of a step, unless Run has ended.
func (w *Watcher) tell(ctx context.Context, e ended) {
	select {
	case w.ended <- e:
	case <-ctx.Done():
	}
}

// end notes what came of a step.
func (w *Watcher) end(e ended) {
	k := w.state[e.path]
	if stop := w.cancels[e.path]; stop != nil {
		stop()
		delete(w.cancels, e.path)
	}
	registering, ignored := k.doing == register, errors.Is(e.err, errIgnored)
	if ignored {
		e.err = nil
	}
	canceled := k.canceled
	k.end(e.plugin, ignored, e.err, time.Now())
	switch {
	case canceled || !registering:
	case e.err != nil:
		w.opts.Logger.Warn("plugin is not registered", "socket", e.path, "failures", k.failures, "error", e.err)
	case ignored:
		w.opts.Logger.Debug("plugin of a type that nobody handles", "type", e.plugin.Type, "socket", e.path)
	default:
		w.opts.Logger.Info("plugin is registered", "type", e.plugin.Type, "name", e.plugin.Name, "endpoint", e.plugin.Endpoint)
	}
}
