// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
)

// Device is what volumes of several pods share: it is staged before the first of them is set up, and unstaged after the last is
// torn down. All of it is recorded, before it is staged.
type Device struct {
	// Name is that of the volume for its plugin, the same on the whole node, of at most 1,024 bytes. The kubelet's unique volume name
	// is PLUGIN/NAME. Empty: the volume is not staged.
	Name string `json:"name"`
	// Dir is where it is staged, below PluginDir; empty: nowhere. The directories that lead there exist when it is staged.
	Dir string `json:"dir,omitempty"`
	// MapDir is where a block device is bound for each pod by its UID, below PluginDir.
	MapDir string `json:"mapDir,omitempty"`
	// Data is what the plugin needs to unstage it beside that, of at most 16 KiB. It is no place for secrets.
	Data map[string]string `json:"data,omitempty"`
	// Attachable: it has to be attached to the node before it is staged, which is for [Attacher].
	Attachable bool `json:"attachable,omitempty"`
}

// Stager is a [Plugin] with volumes that are staged: made ready once on the node, for all pods that share them. A volume with a
// claim whose plugin is none is set up for each pod alone. Its methods are called for one device one at a time, and not while
// a volume of it is set up or torn down.
type Stager interface {
	// Device returns what a volume shares. It depends on nothing but PV, Block and the names in v, which has no Device yet. It may ask
	// somebody about the driver of the volume, and returns when ctx ends.
	Device(ctx context.Context, v Volume) (Device, error)
	// Stage makes a device ready, for one of the volumes that share it. It is idempotent. An error is one as of SetUp.
	Stage(ctx context.Context, v Volume) error
	// Unstage undoes Stage, by what is in the record. What was never staged is success. Nobody uses the device.
	Unstage(ctx context.Context, v Volume) error
}

// Expansion is how much a volume is to grow, in bytes.
type Expansion struct {
	Old, New int64 // of the claim, and of the volume
}

// Expander is a [Stager] whose volumes have to grow on the node, too, when their PV has grown.
type Expander interface {
	// NodeExpand lets a volume that is set up grow, once for all pods that share it, while containers use it or before any does. One
	// that has the size already is success.
	NodeExpand(ctx context.Context, v Volume, e Expansion) error
}

// Attacher knows what is attached to the node. Without one nothing has to be attached.
type Attacher interface {
	// WaitForAttach returns when a volume is attached, and the path of its device if that is known. It is called before each Stage
	// of an attachable device, and returns when ctx ends, after Options.AttachTimeout.
	WaitForAttach(ctx context.Context, v Volume) (devicePath string, err error)
}
