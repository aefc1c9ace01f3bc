// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"

	"github.com/seed81659283/nodeagent/cri"
)

// Plugin calls a device plugin, which serves the devices of one resource. Package device/plugin implements it over gRPC, and package
// device/devicetest in memory.
//
// Calls are concurrent. Each call must return when ctx ends. The errors are reported word by word.
type Plugin interface {
	// Options returns the optional calls that the plugin requests.
	Options() PluginOptions
	// Preferred returns the IDs of count devices that fit together best. open has the IDs from which the plugin may choose. chosen has the IDs that
	// the result must include. Preferred is called only if PluginOptions.Preferred is set.
	Preferred(ctx context.Context, open, chosen []string, count int) ([]string, error)
	// Allocate prepares devices for a container, and returns the additions to its config.
	Allocate(ctx context.Context, ids []string) (Response, error)
	// PreStart is called before each start of a container that holds the devices, if PluginOptions.PreStart is set.
	PreStart(ctx context.Context, ids []string) error
}

// PluginOptions are the optional calls that a plugin requests in addition to Allocate. The zero value requests none.
type PluginOptions struct {
	PreStart  bool // PreStartContainer before each start of a container
	Preferred bool // GetPreferredAllocation before Allocate
}

// Response has the additions to the config of a container that uses devices. Its zero value adds nothing.
type Response struct {
	Env         map[string]string `json:",omitempty"`
	Mounts      []cri.Mount       `json:",omitempty"`
	Devices     []cri.Device      `json:",omitempty"`
	Annotations map[string]string `json:",omitempty"`
	CDIDevices  []string          `json:",omitempty"` // fully qualified, such as "vendor.com/class=name"
}

// Feed receives the device lists of one connected plugin, from one goroutine. Its methods do not block.
type Feed interface {
	// Update replaces the devices of the plugin. If an ID is empty, occurs twice or is too long, or if there are too many devices, it returns an
	// error and keeps the previous devices.
	Update(devices []Device) error
	// Close reports that the plugin is no longer connected. Further calls do nothing.
	Close()
}
