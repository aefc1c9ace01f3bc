// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/seed81659283/nodeagent/internal/pluginregistry"
	"github.com/seed81659283/nodeagent/internal/sleep"
	"github.com/seed81659283/nodeagent/volume"
)

// pluginType is the type by which drivers register themselves.
const pluginType = "CSIPlugin"

// driver is a driver that is registered.
type driver struct {
	plugin  pluginregistry.Plugin
	version *utilversion.Version
	before  *driver // whose place it takes once it is known to work; nil: there is none
}

// is reports whether a driver is the one behind a socket.
func (d *driver) is(p pluginregistry.Plugin) bool {
	return d.plugin.Socket == p.Socket && d.plugin.Endpoint == p.Endpoint
}

// drivers are the drivers that are registered, by their names. They are the handler of their registration.
type drivers struct {
	p *Plugin

	mu     sync.Mutex // guards what follows
	byName map[string]driver
	notice map[int]func(name string) // called when a driver has come
	last   int                       // key in it
}

var _ pluginregistry.Handler = (*drivers)(nil)

func (d *drivers) get(name string) (driver, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, ok := d.byName[name]
	return found, ok
}

// highest returns the version that a driver is used by: the highest of those before 2.
func highest(versions []string) (*utilversion.Version, error) {
	if len(versions) == 0 {
		return nil, errors.New("it supports no version")
	}
	return utilversion.HighestSupportedVersion(versions)
}

// Validate returns why a driver cannot be registered. A second driver of the same name can only if its version is higher.
func (d *drivers) Validate(p pluginregistry.Plugin) error {
	_, err := d.validate(p)
	return err
}

func (d *drivers) validate(p pluginregistry.Plugin) (*utilversion.Version, error) {
	if err := checkDriver(p.Name); err != nil {
		return nil, err
	}
	version, err := highest(p.Versions)
	if err != nil {
		return nil, fmt.Errorf("CSI driver %s: versions %.256q: %w", p.Name, p.Versions, err)
	}
	if old, ok := d.get(p.Name); ok && !old.version.LessThan(version) {
		return nil, fmt.Errorf("CSI driver %s is registered already, with version %s, by socket %s", p.Name, old.version, old.plugin.Socket)
	}
	return version, nil
}

// Register asks a driver about the node and tells that on.
func (d *drivers) Register(ctx context.Context, p pluginregistry.Plugin) error {
	version, err := d.validate(p)
	if err != nil {
		return err
	}
	d.set(p, version)
	if err := d.install(ctx, p.Name); err != nil {
		if !d.restore(p) {
			d.Deregister(context.WithoutCancel(ctx), p)
		}
		return err
	}
	d.keep(p)
	for _, f := range d.listeners() {
		f(p.Name)
	}
	return nil
}

func (d *drivers) listeners() []func(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.notice))
}

func (d *drivers) set(p pluginregistry.Plugin, version *utilversion.Version) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := driver{plugin: p, version: version}
	if before, ok := d.byName[p.Name]; ok {
		now.before = &before
	}
	d.byName[p.Name] = now
}

// restore puts back the driver whose place another one has taken that does not work, and reports whether it is still there.
func (d *drivers) restore(p pluginregistry.Plugin) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, ok := d.byName[p.Name]
	if !ok || !found.is(p) || found.before == nil {
		return false
	}
	d.byName[p.Name] = *found.before
	return true
}

// keep forgets the driver whose place another one has taken.
func (d *drivers) keep(p pluginregistry.Plugin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found, ok := d.byName[p.Name]; ok && found.is(p) {
		found.before = nil
		d.byName[p.Name] = found
	}
}

// install asks a driver about the node, and tells Options.Node.
func (d *drivers) install(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, d.p.opts.Timeout)
	defer cancel()
	c, err := d.p.open(ctx, name)
	if err != nil {
		return err
	}
	defer c.close()
	answer, err := call(ctx, c, "NodeGetInfo", c.node.NodeGetInfo, &csi.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	if d.p.opts.Node == nil {
		return nil
	}
	info := NodeInfo{Driver: name, NodeID: answer.GetNodeId(), MaxVolumes: answer.GetMaxVolumesPerNode(), Topology: answer.GetAccessibleTopology().GetSegments()}
	err = persist(ctx, func() error { return d.p.opts.Node.Install(ctx, info) })
	if err != nil {
		return fmt.Errorf("CSI driver %s: install on the node: %w", name, err)
	}
	return nil
}

// Deregister forgets a driver, unless another one has its name by now.
func (d *drivers) Deregister(ctx context.Context, p pluginregistry.Plugin) {
	d.mu.Lock()
	found, ok := d.byName[p.Name]
	ours := ok && found.is(p)
	switch {
	case ours:
		delete(d.byName, p.Name)
	case ok && found.before != nil && found.before.is(p):
		found.before = nil
		d.byName[p.Name] = found
	}
	d.mu.Unlock()
	if !ours || d.p.opts.Node == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.p.opts.Timeout)
	defer cancel()
	if err := persist(ctx, func() error { return d.p.opts.Node.Uninstall(ctx, p.Name) }); err != nil {
		d.p.opts.Logger.Warn("CSI driver is still on the node", "driver", p.Name, "error", err)
	}
}

// persist calls f up to four times, as the kubelet does with what it writes about drivers.
func persist(ctx context.Context, f func() error) error {
	wait := 10 * time.Millisecond
	for try := 1; ; try++ {
		err := f()
		if err == nil || try == 4 {
			return err
		}
		if sleep.For(ctx, wait) != nil {
			return err
		}
		wait *= 5
	}
}

// Watch calls changed for each driver that registers itself, until ctx ends, so that volumes that wait for it are tried again at
// once. It is a volume.Watcher.
func (p *Plugin) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	d := &p.drivers
	d.mu.Lock()
	d.last++
	at := d.last
	d.notice[at] = func(name string) { changed(kindDriver, "", name) }
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.notice, at)
	return nil
}

// WaitsFor reports whether an object is, or may be, a driver. It makes a [Plugin] a [volume.Waiter].
func (p *Plugin) WaitsFor(o volume.Object) bool { return o.Kind == kindDriver || o.Kind == "" }

// kindDriver is the kind of the object that is said to have changed when a driver has registered itself.
const kindDriver = "CSIDriver"
