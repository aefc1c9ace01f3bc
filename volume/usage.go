// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"

	"github.com/seed81659283/nodeagent/volume/plan"
)

// Usage returns how much the volumes of a pod take, by their names: of those that are set up and whose plugin is a [Usager].
// What cannot be measured is left out, with an error that names it.
func (v *Volumes) Usage(ctx context.Context, uid string) (map[string]Usage, error) {
	v.mu.Lock()
	var volumes []Volume
	var names [][]string
	if p := v.pods[uid]; p != nil {
		for _, e := range p.volumes {
			if e.Phase == plan.Ready {
				volumes = append(volumes, v.volume(p, e))
				names = append(names, e.names())
			}
		}
	}
	v.mu.Unlock()
	usage := make(map[string]Usage, len(volumes))
	var errs []error
	for i, vol := range volumes {
		u, ok := v.opts.Plugins[vol.Plugin].(Usager)
		if !ok {
			continue
		}
		used, err := u.Usage(ctx, vol)
		if err != nil {
			errs = append(errs, fmt.Errorf("usage of volume %q: %w", vol.Name, err))
			continue
		}
		for _, name := range names[i] {
			usage[name] = used
		}
	}
	if len(errs) > 0 {
		return usage, join(errs)
	}
	return usage, nil
}

// Place is where a volume of a pod is on this node.
type Place struct{ Plugin, Path string }

// Places returns where the volumes of a pod are, by their names: of those that are set up and are no block devices. A claim that the pod
// has under several names is in one place.
func (v *Volumes) Places(uid string) map[string]Place {
	v.mu.Lock()
	defer v.mu.Unlock()
	places := map[string]Place{}
	p := v.pods[uid]
	if p == nil {
		return places
	}
	for _, e := range p.volumes {
		if e.Phase != plan.Ready || e.recorded.Block || e.mount.HostPath == "" {
			continue
		}
		for _, name := range e.names() {
			places[name] = Place{e.recorded.Plugin, e.mount.HostPath}
		}
	}
	return places
}
