// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
)

// Device is the part of a volume that all pods on the node share, such as the mounted file system of a PV. A [Stager] stages it
// before the first pod uses it, and unstages it after the last pod. Its fields are stored in the record of each pod.
type Device struct {
	// Name identifies the volume on this node among those of its plugin, in at most 1,024 bytes. The kubelet's unique volume name
	// is PLUGIN/NAME. Empty: the volume is not staged.
	Name string `json:"name"`
	// Dir is the staging directory, relative to Options.PluginDir; empty: none. Its parents exist when Stage is called.
	Dir string `json:"dir,omitempty"`
	// MapDir is the directory, relative to Options.PluginDir, with one bind mount of the block device per pod, named after the
	// UID of the pod.
	MapDir string `json:"mapDir,omitempty"`
	// Data is additional data that Unstage needs, at most 16 KiB, without secrets.
	Data map[string]string `json:"data,omitempty"`
	// Attachable makes [Volumes] call the [Attacher] before Stage.
	Attachable bool `json:"attachable,omitempty"`
}

// Stager is an optional interface of a [Plugin] whose volumes are staged once on the node, for all pods that share them:
// NodeStageVolume in CSI. The methods are called for one device one at a time, and never while a volume of the device is set up
// or torn down.
type Stager interface {
	// Device returns the device of a volume. The result may depend only on vol.PV, vol.Block and the names in vol; vol.Device
	// is not set yet. It may query the CSI driver or the API server, and must return when ctx ends.
	Device(ctx context.Context, vol Volume) (Device, error)
	// Stage prepares the device of vol, such as by mounting its file system at vol.StagingDir. It must be idempotent. Errors
	// have the meaning of those of [Plugin] SetUp.
	Stage(ctx context.Context, vol Volume) error
	// Unstage reverts Stage; vol has only the recorded fields. A device that was never staged is no error. No volume of the
	// device is set up.
	Unstage(ctx context.Context, vol Volume) error
}

// Expansion is the requested growth of a volume.
type Expansion struct {
	OldSize, NewSize int64 // bytes: size of the volume on this node, and requested size
}

// Expander is an optional interface of a [Stager] whose volumes must be expanded on the node after their PV has grown:
// NodeExpandVolume in CSI.
type Expander interface {
	// NodeExpand expands a volume that is set up, once for all pods that share it. Containers may be using the volume. A volume
	// that already has the size is no error.
	NodeExpand(ctx context.Context, vol Volume, expansion Expansion) error
}

// Attacher waits until a controller has attached a volume to this node. Attaching itself is not its task.
type Attacher interface {
	// WaitForAttach blocks until vol is attached, and returns the path of its device, or "" if that is unknown. It is called
	// before each Stage of a [Device] with Attachable set. ctx ends after Options.AttachTimeout.
	WaitForAttach(ctx context.Context, vol Volume) (devicePath string, err error)
}
