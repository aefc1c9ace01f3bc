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

// pluginType is the type with which CSI drivers register in the plugin registry.
const pluginType = "CSIPlugin"

// driver is a registered CSI driver.
type driver struct {
	plugin      pluginregistry.Plugin
	version     *utilversion.Version
	predecessor *driver // driver of the same name that this driver replaces once NodeGetInfo has succeeded; nil: none
}

// matchesSocket reports whether d was registered with the registration socket and the endpoint of plugin.
func (d *driver) matchesSocket(plugin pluginregistry.Plugin) bool {
	return d.plugin.Socket == plugin.Socket && d.plugin.Endpoint == plugin.Endpoint
}

// drivers is the table of registered drivers, by name. It implements [pluginregistry.Handler], through which drivers register.
type drivers struct {
	p *Plugin

	mu           sync.Mutex // guards the fields below
	byName       map[string]driver
	listeners    map[int]func(name string) // called with the name of a driver that has registered
	lastListener int                       // key of the last listener
}

var _ pluginregistry.Handler = (*drivers)(nil)

func (d *drivers) findDriver(name string) (driver, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, ok := d.byName[name]
	return found, ok
}

// highestVersion returns the highest CSI version below 2.0 among the versions that a driver supports.
func highestVersion(versions []string) (*utilversion.Version, error) {
	if len(versions) == 0 {
		return nil, errors.New("driver supports no version")
	}
	return utilversion.HighestSupportedVersion(versions)
}

// Validate returns an error if a driver cannot be registered: its name is invalid, it supports no usable CSI version, or a
// driver with this name and an equal or higher CSI version is registered.
func (d *drivers) Validate(plugin pluginregistry.Plugin) error {
	_, err := d.checkDriverVersion(plugin)
	return err
}

func (d *drivers) checkDriverVersion(plugin pluginregistry.Plugin) (*utilversion.Version, error) {
	if err := checkDriver(plugin.Name); err != nil {
		return nil, err
	}
	version, err := highestVersion(plugin.Versions)
	if err != nil {
		return nil, fmt.Errorf("CSI driver %s: versions %.256q: %w", plugin.Name, plugin.Versions, err)
	}
	if old, ok := d.findDriver(plugin.Name); ok && !old.version.LessThan(version) {
		return nil, fmt.Errorf("CSI driver %s is registered already, with version %s, by socket %s", plugin.Name, old.version, old.plugin.Socket)
	}
	return version, nil
}

// Register registers a driver. It calls NodeGetInfo of the driver and passes the response to Options.NodeUpdater. After an
// error, the driver is not registered, and a previous driver of the same name stays registered.
func (d *drivers) Register(ctx context.Context, plugin pluginregistry.Plugin) error {
	version, err := d.checkDriverVersion(plugin)
	if err != nil {
		return err
	}
	d.addDriver(plugin, version)
	if err := d.installDriver(ctx, plugin.Name); err != nil {
		if !d.restorePredecessor(plugin) {
			d.Deregister(context.WithoutCancel(ctx), plugin)
		}
		return err
	}
	d.dropPredecessor(plugin)
	for _, f := range d.listListeners() {
		f(plugin.Name)
	}
	return nil
}

func (d *drivers) listListeners() []func(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.listeners))
}

func (d *drivers) addDriver(plugin pluginregistry.Plugin, version *utilversion.Version) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := driver{plugin: plugin, version: version}
	if before, ok := d.byName[plugin.Name]; ok {
		now.predecessor = &before
	}
	d.byName[plugin.Name] = now
}

// restorePredecessor registers the previous driver of the same name again, after a failed registration. It returns false if
// there was none.
func (d *drivers) restorePredecessor(plugin pluginregistry.Plugin) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	found, ok := d.byName[plugin.Name]
	if !ok || !found.matchesSocket(plugin) || found.predecessor == nil {
		return false
	}
	d.byName[plugin.Name] = *found.predecessor
	return true
}

// dropPredecessor removes the previous driver of the same name, after plugin was registered successfully. Until then, the
// previous driver remains as a fallback.
func (d *drivers) dropPredecessor(plugin pluginregistry.Plugin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found, ok := d.byName[plugin.Name]; ok && found.matchesSocket(plugin) {
		found.predecessor = nil
		d.byName[plugin.Name] = found
	}
}

// installDriver calls NodeGetInfo of the registered driver with this name, and passes the response to Options.NodeUpdater.
func (d *drivers) installDriver(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, d.p.opts.Timeout)
	defer cancel()
	c, err := d.p.connectDriver(ctx, name)
	if err != nil {
		return err
	}
	defer c.close()
	answer, err := invoke(ctx, c, "NodeGetInfo", c.node.NodeGetInfo, &csi.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	if d.p.opts.NodeUpdater == nil {
		return nil
	}
	info := NodeInfo{Driver: name, NodeID: answer.GetNodeId(), MaxVolumes: answer.GetMaxVolumesPerNode(), Topology: answer.GetAccessibleTopology().GetSegments()}
	err = retryFourTimes(ctx, func() error { return d.p.opts.NodeUpdater.InstallDriver(ctx, info) })
	if err != nil {
		return fmt.Errorf("CSI driver %s: write to the Node: %w", name, err)
	}
	return nil
}

// Deregister removes a driver whose registration socket was removed. It then calls Options.NodeUpdater. It keeps a driver
// that has the same name but another socket.
func (d *drivers) Deregister(ctx context.Context, plugin pluginregistry.Plugin) {
	d.mu.Lock()
	found, ok := d.byName[plugin.Name]
	ours := ok && found.matchesSocket(plugin)
	switch {
	case ours:
		delete(d.byName, plugin.Name)
	case ok && found.predecessor != nil && found.predecessor.matchesSocket(plugin):
		found.predecessor = nil
		d.byName[plugin.Name] = found
	}
	d.mu.Unlock()
	if !ours || d.p.opts.NodeUpdater == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d.p.opts.Timeout)
	defer cancel()
	if err := retryFourTimes(ctx, func() error { return d.p.opts.NodeUpdater.UninstallDriver(ctx, plugin.Name) }); err != nil {
		d.p.opts.Logger.Warn("cannot remove CSI driver from Node and CSINode", "driver", plugin.Name, "error", err)
	}
}

// retryFourTimes calls f until it returns nil, at most four times as in the kubelet, and returns the last error.
func retryFourTimes(ctx context.Context, f func() error) error {
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

// Watch calls changed for each driver that registers, until ctx ends. [volume.Volumes] then retries the volumes that wait for the
// driver. It implements [volume.Watcher].
func (p *Plugin) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	d := &p.drivers
	d.mu.Lock()
	d.lastListener++
	at := d.lastListener
	d.listeners[at] = func(name string) { changed(kindDriver, "", name) }
	d.mu.Unlock()
	<-ctx.Done()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.listeners, at)
	return nil
}

// WaitsFor reports whether a change of object may let failed steps succeed: it is a CSIDriver object, or its kind is empty,
// which means any kind. WaitsFor implements [volume.ObjectWaiter].
func (p *Plugin) WaitsFor(object volume.Object) bool {
	return object.Kind == kindDriver || object.Kind == ""
}

// kindDriver is the kind of object that Watch reports when a driver has registered.
const kindDriver = "CSIDriver"
