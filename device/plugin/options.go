// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/internal/plugingrpc"
)

// Receiver takes the plugins that have connected. A device.Allocator is one. Its method may be called concurrently.
type Receiver interface {
	// Connect adds the plugin p, which serves a resource at the unix socket with this path, and returns the feed for its devices. A
	// second plugin with the same resource and socket replaces the first; calls of the first feed then have no effect. After an error
	// the plugin is not used, and its registration fails.
	Connect(resource, socket string, p device.Plugin) (device.Feed, error)
}

// Options configure a [Host].
type Options struct {
	// Dir is the directory with kubelet.sock and the sockets of plugins, such as /var/lib/kubelet/device-plugins. Required.
	Dir string
	// Registry is the directory in which plugins register by a socket, such as /var/lib/kubelet/plugins_registry. Only sockets of type
	// DevicePlugin are used. Empty: plugins register in Dir only.
	Registry string
	Receiver Receiver // required
	// Sockets are those of the plugins before a restart. Run connects to each once. Relative paths are relative to Dir. Nil: none.
	Sockets []device.Socket
	Hooks   Hooks
	Logger  *slog.Logger // nil discards
}

// Hooks are callbacks of a [Host]; any may be nil. They may be called concurrently, and must not block.
type Hooks struct {
	// RegistrationRequested is called for each Register call before it is checked. resource may be any text of up to 16 KiB.
	RegistrationRequested func(resource string)
}

// maxPlugins is the largest number of plugins that are connected or connecting.
const maxPlugins = 1024

// validate returns an error for the first invalid field, and replaces optional fields by their defaults.
func (o *Options) validate() error {
	switch {
	case o.Dir == "":
		return errors.New("device/plugin: field Dir is empty: it is the directory in which device plugins register")
	case !filepath.IsAbs(o.Dir):
		return fmt.Errorf("device/plugin: field Dir: %q is no absolute path", o.Dir)
	case o.Receiver == nil:
		return errors.New("device/plugin: field Receiver is nil")
	case len(o.Sockets) > maxPlugins:
		return fmt.Errorf("device/plugin: field Sockets: %d sockets, more than %d", len(o.Sockets), maxPlugins)
	}
	o.Dir = filepath.Clean(o.Dir)
	sockets := make([]device.Socket, 0, len(o.Sockets))
	for _, s := range o.Sockets {
		if !isExtendedResource(s.Resource) {
			return fmt.Errorf("device/plugin: field Sockets: resource %.64q is invalid", s.Resource)
		}
		if !filepath.IsAbs(s.Path) {
			s.Path = filepath.Join(o.Dir, s.Path)
		}
		if err := plugingrpc.CheckPath(s.Path); err != nil {
			return fmt.Errorf("device/plugin: field Sockets: %w", err)
		}
		sockets = append(sockets, s)
	}
	o.Sockets = sockets
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
