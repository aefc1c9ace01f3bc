// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/seed81659283/nodeagent/internal/pluginregistry"
	"github.com/seed81659283/nodeagent/internal/volume/token"
	"github.com/seed81659283/nodeagent/volume"
)

// Plugin is a [volume.Plugin] that sets up volumes by calling CSI drivers. Create it with [New]. Drivers register while
// [Plugin.Run] runs.
type Plugin struct {
	opts     Options
	registry *pluginregistry.Watcher
	drivers  drivers
	cache    *token.Cache // service account tokens; nil: Options.Tokens is nil
}

var (
	_ volume.Plugin   = (*Plugin)(nil)
	_ volume.Checker  = (*Plugin)(nil)
	_ volume.Stager   = (*Plugin)(nil)
	_ volume.Expander = (*Plugin)(nil)

	_ volume.SELinuxMounter = (*Plugin)(nil)
	_ volume.UsageProvider  = (*Plugin)(nil)
	_ volume.Attacher       = (*Plugin)(nil)
	_ volume.Watcher        = (*Plugin)(nil)
	_ volume.ObjectWaiter   = (*Plugin)(nil)
)

// New returns a plugin without drivers. It starts no goroutine: drivers register when [Plugin.Run] runs. If an option is
// invalid, the error names it.
func New(opts Options) (*Plugin, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	p := &Plugin{opts: opts}
	p.drivers = drivers{p: p, byName: map[string]driver{}, listeners: map[int]func(string){}}
	if opts.Tokens != nil {
		p.cache = token.NewCache(opts.Tokens, nil)
	}
	var err error
	p.registry, err = pluginregistry.New(pluginregistry.Options{
		Dir: opts.Registry, Handlers: map[string]pluginregistry.Handler{pluginType: &p.drivers}, Component: "csi.Plugin", Logger: opts.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("csi: %w", err)
	}
	return p, nil
}

// Run registers drivers when their sockets appear in Options.Registry, and deregisters them when the sockets are removed. It
// returns when ctx ends and all its goroutines have returned. Volumes remain set up. Run must be called only once.
func (p *Plugin) Run(ctx context.Context) error { return p.registry.Run(ctx) }

// Drivers returns the sorted names of the registered drivers.
func (p *Plugin) Drivers() []string {
	p.drivers.mu.Lock()
	defer p.drivers.mu.Unlock()
	return slices.Sorted(maps.Keys(p.drivers.byName))
}

// Check returns an error for an inline volume with an invalid driver name, or for which this plugin lacks an option. path is the
// field path of the volume. A driver that is not registered is accepted: it may register later.
func (p *Plugin) Check(_ *corev1.Pod, vol *corev1.Volume, path *field.Path) field.ErrorList {
	c := vol.CSI
	if c == nil {
		return nil // the volume has a claim
	}
	var errs field.ErrorList
	if err := checkDriver(c.Driver); err != nil {
		errs = append(errs, field.Invalid(path.Child("driver"), c.Driver, err.Error()))
	}
	if p.opts.Drivers == nil {
		errs = append(errs, field.Forbidden(path, "not supported on this node: there are no CSIDriver objects, which have to allow it"))
	}
	if c.NodePublishSecretRef != nil && p.opts.Secrets == nil {
		errs = append(errs, field.Forbidden(path.Child("nodePublishSecretRef"), "not supported on this node: there are no secrets"))
	}
	return errs
}
