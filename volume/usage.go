// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// Usage has the used and the available space of a volume, in bytes and inodes. Zero means unknown.
type Usage struct {
	UsedBytes, CapacityBytes, AvailableBytes uint64
	UsedInodes, Inodes, FreeInodes           uint64
	// Abnormal describes a problem of the volume that its CSI driver reports; empty: none is known.
	Abnormal string
}

// UsageProvider is an optional interface of a [Plugin] that measures the usage of volumes.
type UsageProvider interface {
	// Usage measures a volume, without file systems that are mounted inside. It returns [errors.ErrUnsupported] if the usage
	// cannot be measured; Usage.Abnormal may be set even then.
	Usage(ctx context.Context, vol Volume) (Usage, error)
}

// Usage measures the usage of the named volume of the pod with this UID. The error wraps [fs.ErrNotExist] if the volume is not
// set up, and [errors.ErrUnsupported] if the plugin cannot measure it.
func (v *Volumes) Usage(ctx context.Context, uid, name string) (used Usage, err error) {
	vol, ok := v.findSetUp(uid, name)
	if !ok {
		return used, fmt.Errorf("usage of volume %q: %w", name, fs.ErrNotExist)
	}
	err = errors.ErrUnsupported
	if u, ok := v.opts.Plugins[vol.Plugin].(UsageProvider); ok {
		used, err = u.Usage(ctx, vol)
	}
	if err != nil {
		return used, fmt.Errorf("usage of volume %q: %w", name, err)
	}
	return used, nil
}

// findSetUp returns the named volume of the pod with this UID. It returns false if the volume is not set up.
func (v *Volumes) findSetUp(uid, name string) (Volume, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.pods[uid]; p != nil {
		for _, e := range p.volumes {
			if e.plan.Phase == plan.Ready && slices.Contains(e.recorded.Names(), name) {
				return v.describeVolume(p, e), true
			}
		}
	}
	return Volume{}, false
}

// Location is the path of a volume on this node. It is a directory, or the block device if Block is true.
type Location struct {
	Plugin, Path string
	Block        bool
}

// Locations returns the locations of the volumes of the pod with this UID that are set up. The keys are volume names. If the
// pod has several names for one claim, the map contains the location under each name.
func (v *Volumes) Locations(uid string) map[string]Location {
	v.mu.Lock()
	defer v.mu.Unlock()
	places := map[string]Location{}
	p := v.pods[uid]
	if p == nil {
		return places
	}
	for _, e := range p.volumes {
		if e.plan.Phase != plan.Ready || e.mount.HostPath == "" {
			continue
		}
		for _, name := range e.recorded.Names() {
			places[name] = Location{e.recorded.Plugin, e.mount.HostPath, e.recorded.Block}
		}
	}
	return places
}

// namesInUse returns the sorted names of the attachable devices that are needed or may be staged, and must not be detached.
func (v *Volumes) namesInUse() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	for name, d := range v.devices.byName {
		if d.spec.Attachable && (d.plan.Phase != plan.Absent || !v.devices.isUnneeded(d)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
