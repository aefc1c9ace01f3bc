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

// Plugin makes volumes by CSI drivers. Make one with [New].
type Plugin struct {
	opts     Options
	registry *pluginregistry.Watcher
	drivers  drivers
	cache    *token.Cache // nil: there are no tokens
}

var (
	_ volume.Plugin   = (*Plugin)(nil)
	_ volume.Checker  = (*Plugin)(nil)
	_ volume.Stager   = (*Plugin)(nil)
	_ volume.Expander = (*Plugin)(nil)

	_ volume.SELinuxMounter = (*Plugin)(nil)
	_ volume.Usager         = (*Plugin)(nil)
	_ volume.Attacher       = (*Plugin)(nil)
	_ volume.Watcher        = (*Plugin)(nil)
	_ volume.Waiter         = (*Plugin)(nil)
)

// New returns a plugin that knows no driver yet. It starts nothing. An error says which field of the options is invalid.
func New(o Options) (*Plugin, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	p := &Plugin{opts: o}
	p.drivers = drivers{p: p, byName: map[string]driver{}, notice: map[int]func(string){}}
	if o.Tokens != nil {
		p.cache = token.NewCache(o.Tokens, nil)
	}
	var err error
	p.registry, err = pluginregistry.New(pluginregistry.Options{
		Dir: o.Registry, Handlers: map[string]pluginregistry.Handler{pluginType: &p.drivers}, Component: "csi.Plugin", Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("csi: %w", err)
	}
	return p, nil
}

// Run registers drivers that come, and forgets those that go, until ctx ends. It is called once, and returns when all that it has
// started has returned. Volumes stay as they are.
func (p *Plugin) Run(ctx context.Context) error { return p.registry.Run(ctx) }

// Drivers returns the names of the drivers that are registered, sorted.
func (p *Plugin) Drivers() []string {
	p.drivers.mu.Lock()
	defer p.drivers.mu.Unlock()
	return slices.Sorted(maps.Keys(p.drivers.byName))
}

// Check refuses volumes in a pod itself whose driver has no valid name, or that need what is not there. Whether the driver is
// there nobody knows before it is needed.
func (p *Plugin) Check(_ *corev1.Pod, v *corev1.Volume, path *field.Path) field.ErrorList {
	c := v.CSI
	if c == nil {
		return nil // it has a claim
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
