// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/seed81659283/nodeagent/internal/pluginregistry"
)

// registryHandler registers the device plugins that a pluginregistry.Watcher has found. It needs a running [Host.Run]. Source:
// pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go.
type registryHandler struct{ host *Host }

var _ pluginregistry.Handler = registryHandler{}

// openRegistry creates the watcher of Options.Registry.
func (h *Host) openRegistry() (err error) {
	if h.opts.Registry == "" {
		return nil
	}
	h.registry, err = pluginregistry.New(pluginregistry.Options{
		Dir: h.opts.Registry, Handlers: map[string]pluginregistry.Handler{registration.DevicePlugin: registryHandler{h}},
		Component: "plugin.Host", Logger: h.opts.Logger,
	})
	if err != nil {
		return fmt.Errorf("device/plugin: field Registry: %w", err)
	}
	return nil
}

// Validate returns the kubelet's error for a plugin with an unsupported API version or an invalid resource name.
func (r registryHandler) Validate(p pluginregistry.Plugin) error {
	if !slices.ContainsFunc(p.Versions, func(v string) bool { return checkVersion(v) == nil }) {
		return fmt.Errorf("manager version, %s, is not among plugin supported versions %v", api.Version, p.Versions)
	}
	if err := checkResource(p.Name); err != nil {
		return fmt.Errorf("invalid name of device plugin socket: %w", err)
	}
	return nil
}

// Register connects the plugin at its endpoint. It returns when the plugin is connected.
func (r registryHandler) Register(ctx context.Context, p pluginregistry.Plugin) error {
	if err := r.Validate(p); err != nil {
		return err
	}
	return r.host.connectSession(ctx, newSession(p.Name, p.Endpoint, true), 0)
}

// Deregister disconnects plugin p, and returns when its feed is closed or ctx ends. It ignores a plugin that is not connected.
func (r registryHandler) Deregister(ctx context.Context, p pluginregistry.Plugin) {
	h := r.host
	h.mu.Lock()
	sessions := slices.Clone(h.sessions[sessionKey{p.Name, p.Endpoint}])
	h.mu.Unlock()
	for _, s := range sessions {
		s.stop(errDeregistered)
		select {
		case <-s.done:
		case <-ctx.Done():
		}
	}
}
