// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/internal/sleep"
)

// Limits of what plugins may register.
const (
	maxResources = 1024    // resources that have a plugin, are held, or had a plugin in the last minutes
	maxNames     = 1 << 14 // resources that ever had a plugin since the start
	maxFeeds     = 16      // connected plugins, and remembered sockets, of one resource
)

// feed is a connected plugin.
type feed struct {
	a       *Allocator
	name    string // of the resource
	plugin  Plugin
	options PluginOptions
	socket  string
}

// Connect adds plugin p for the resource name, and returns the feed for its device lists. Devices can be reserved after the first list. If several
// plugins serve one resource, the newest is called. socket is the path of the plugin's socket, for [Allocator.Sockets]; a second plugin with this
// socket replaces the first. Connect records the registration. An invalid name, or too many resources or plugins, is an error.
func (a *Allocator) Connect(name, socket string, p Plugin) (Feed, error) {
	if p == nil || !strings.Contains(name, "/") {
		return nil, fmt.Errorf("connect device plugin for resource %q: the plugin is nil, or the name has no slash", name)
	}
	options := p.Options()
	a.mu.Lock()
	r, err := a.addPluginResource(name)
	if err != nil {
		a.mu.Unlock()
		return nil, err
	}
	r.feeds = slices.DeleteFunc(r.feeds, func(f *feed) bool { return f.socket == socket })
	if len(r.feeds) >= maxFeeds {
		a.mu.Unlock()
		return nil, fmt.Errorf("connect device plugin for resource %q: %d plugins are connected for it, and no more are allowed", name, maxFeeds)
	}
	if len(r.feeds) == 0 {
		// The last list is out of date, or there was none: pods wait for the first list.
		r.waiting = time.Now().Add(StopGrace)
	}
	f := &feed{a: a, name: name, plugin: p, options: options, socket: socket}
	r.feeds = append(r.feeds, f)
	changed := r.recordPlugin(socket, options)
	a.mu.Unlock()
	if changed {
		if err := a.saveRecord(); err != nil {
			a.reportError(err) // the plugin works; it is not dialed after a restart
		}
	}
	return f, nil
}

// addPluginResource returns the resource of this name, and adds it if it is new. An error says that there are too many resources. The caller
// holds a.mu.
func (a *Allocator) addPluginResource(name string) (*resource, error) {
	if r := a.state.resources[name]; r != nil {
		return r, nil
	}
	now := time.Now()
	if len(a.state.resources) >= maxResources {
		a.state.dropForgotten(now)
	}
	switch {
	case len(a.state.resources) >= maxResources:
		return nil, fmt.Errorf("connect device plugin for resource %q: there are %d resources, and no more are allowed", name, maxResources)
	case len(a.state.resources)+len(a.state.dropped) >= maxNames && !a.state.dropped[name]:
		return nil, fmt.Errorf("connect device plugin for resource %q: there were %d resources, and no more are allowed until a restart", name, maxNames)
	}
	delete(a.state.dropped, name)
	return a.addResource(name, now), nil
}

// recordPlugin stores socket and options of the newest plugin. It returns true if this changes the record, which the caller then saves.
func (r *resource) recordPlugin(socket string, options PluginOptions) bool {
	if at := slices.Index(r.sockets, socket); at >= 0 && at == len(r.sockets)-1 && r.options == options && r.registered {
		return false
	}
	r.markRegistered()
	r.options = options
	if socket != "" {
		r.sockets = append(slices.DeleteFunc(r.sockets, func(s string) bool { return s == socket }), socket)
		r.sockets = r.sockets[max(0, len(r.sockets)-maxFeeds):]
	}
	return true
}

// errDisconnected is the error of an update from a plugin that was closed or replaced.
var errDisconnected = errors.New("the plugin is not connected any more")

// Update implements [Feed].
func (f *feed) Update(devices []Device) error {
	index, err := indexDevices(devices)
	if err != nil {
		return fmt.Errorf("update devices of resource %s: %w", f.name, err)
	}
	devices = slices.Clone(devices)
	a := f.a
	a.mu.Lock()
	r := a.state.resources[f.name]
	if r == nil || !slices.Contains(r.feeds, f) { // nil: dropped
		a.mu.Unlock()
		return fmt.Errorf("update devices of resource %s: %w", f.name, errDisconnected)
	}
	if size := a.state.listedSize() - r.size + listSize(devices); size > maxListed {
		a.mu.Unlock()
		return fmt.Errorf("update devices of resource %s: the devices of all plugins take %d bytes, more than %d", f.name, size, maxListed)
	}
	r.stopped = time.Time{}
	capacity, health := r.setDevices(devices, index)
	a.callHooks(f.name, capacity, health)
	return nil
}

// Close implements [Feed].
func (f *feed) Close() {
	a := f.a
	a.mu.Lock()
	r := a.state.resources[f.name]
	if r == nil || !slices.Contains(r.feeds, f) { // nil: dropped
		a.mu.Unlock()
		return
	}
	before, at := r.allocatable(), slices.Index(r.feeds, f)
	r.feeds = slices.Delete(r.feeds, at, at+1)
	var health map[string]bool
	if len(r.feeds) == 0 {
		r.stopped = time.Now()
		health = r.deviceIDs()
		sleep.Wake(a.wake)
	}
	a.callHooks(f.name, before != r.allocatable(), health)
}

// callHooks calls the hooks after a change of resource name. capacity is true if its capacity has changed. health has the IDs of devices whose health
// has changed. The caller holds a.mu, which callHooks unlocks.
func (a *Allocator) callHooks(name string, capacity bool, health map[string]bool) {
	if capacity || len(health) > 0 {
		a.requestExport(time.Now())
	}
	uids := a.state.holders(name, health)
	if a.state.resources[name].waiting.IsZero() {
		uids = append(uids, slices.Sorted(maps.Keys(a.waiting[name]))...)
		delete(a.waiting, name)
	}
	a.mu.Unlock()
	if hook := a.opts.Hooks.CapacityChanged; hook != nil && capacity {
		hook()
	}
	if hook := a.opts.Hooks.PodsChanged; hook != nil && len(uids) > 0 {
		hook(uids)
	}
}

// Sockets returns the sockets of all recorded plugins, in the order of resources and registrations. After a restart, a program connects to them.
func (a *Allocator) Sockets() (list []Socket) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(a.state.resources)) {
		for _, path := range a.state.resources[name].sockets {
			list = append(list, Socket{Resource: name, Path: path})
		}
	}
	return list
}
