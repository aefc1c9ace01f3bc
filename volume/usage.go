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

// Usage is how much of a file system a volume takes, and how much there is. What is not known is zero.
type Usage struct {
	UsedBytes, CapacityBytes, AvailableBytes uint64
	UsedInodes, Inodes, FreeInodes           uint64
	// Abnormal is what is wrong with the volume, as its driver says; empty: nothing is known.
	Abnormal string
}

// Usager is a [Plugin] that can say how much a volume takes.
type Usager interface {
	// Usage measures a volume. What is mounted in it does not count. The error is [errors.ErrUnsupported] where that
	// cannot be known; Abnormal may be set even then.
	Usage(ctx context.Context, v Volume) (Usage, error)
}

// Usage returns how much a volume of a pod takes. The error is [errors.ErrUnsupported] where its plugin is no [Usager] or cannot
// measure it, and [fs.ErrNotExist] where it is not set up.
func (v *Volumes) Usage(ctx context.Context, uid, name string) (used Usage, err error) {
	vol, ok := v.findSetUp(uid, name)
	if !ok {
		return used, fmt.Errorf("usage of volume %q: %w", name, fs.ErrNotExist)
	}
	err = errors.ErrUnsupported
	if u, ok := v.opts.Plugins[vol.Plugin].(Usager); ok {
		used, err = u.Usage(ctx, vol)
	}
	if err != nil {
		return used, fmt.Errorf("usage of volume %q: %w", name, err)
	}
	return used, nil
}

// findSetUp returns a volume of a pod that is set up.
func (v *Volumes) findSetUp(uid, name string) (Volume, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.pods[uid]; p != nil {
		for _, e := range p.volumes {
			if e.plan.Phase == plan.Ready && slices.Contains(e.recorded.Names(), name) {
				return v.describe(p, e), true
			}
		}
	}
	return Volume{}, false
}

// Place is where a volume of a pod is on this node: its directory, or the block device that containers get.
type Place struct {
	Plugin, Path string
	Block        bool
}

// Places returns where the volumes of a pod are, by their names: of those that are set up. A claim that the pod has under several names
// is in one place.
func (v *Volumes) Places(uid string) map[string]Place {
	v.mu.Lock()
	defer v.mu.Unlock()
	places := map[string]Place{}
	p := v.pods[uid]
	if p == nil {
		return places
	}
	for _, e := range p.volumes {
		if e.plan.Phase != plan.Ready || e.mount.HostPath == "" {
			continue
		}
		for _, name := range e.recorded.Names() {
			places[name] = Place{e.recorded.Plugin, e.mount.HostPath, e.recorded.Block}
		}
	}
	return places
}

// inUse returns the sorted names of the volumes that must stay attached to the node: a source lists their pods, or they may be set up.
func (v *Volumes) inUse() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	for name, d := range v.devices.byName {
		if d.spec.Attachable && (d.plan.Phase != plan.Absent || !v.devices.isUnwanted(d)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
