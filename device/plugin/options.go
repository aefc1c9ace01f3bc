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

// Receiver receives each plugin when it is connected. A device.Allocator is a Receiver. Connect may be called concurrently.
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
	// Sockets are the sockets of plugins that were connected before a restart. Run connects to each socket once. Relative paths are relative to Dir.
	// If there are more than 1,024 sockets, Run connects to the last socket of each resource only. Nil: none.
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
	}
	o.Dir = filepath.Clean(o.Dir)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	limited := limitSockets(o.Sockets)
	if omitted := len(o.Sockets) - len(limited); omitted > 0 {
		o.Logger.Warn("too many sockets of device plugins: some are not connected", "omitted", omitted, "limit", maxPlugins)
	}
	sockets := make([]device.Socket, 0, len(limited))
	for _, s := range limited {
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
	return nil
}

// limitSockets returns list if it has at most maxPlugins sockets. Otherwise it returns the last socket of each resource, for at most maxPlugins
// resources. It returns no error, because registrations of plugins must not prevent a restart.
func limitSockets(list []device.Socket) []device.Socket {
	if len(list) <= maxPlugins {
		return list
	}
	last := map[string]int{} // position by resource
	for i, s := range list {
		last[s.Resource] = i
	}
	var limited []device.Socket
	for i, s := range list {
		if last[s.Resource] == i && len(limited) < maxPlugins {
			limited = append(limited, s)
		}
	}
	return limited
}
