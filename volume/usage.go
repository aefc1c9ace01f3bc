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
	if p := v.pods[uid]; p != nil {
		for _, e := range p.volumes {
			if e.Phase == plan.Ready {
				volumes = append(volumes, v.volume(p, e))
			}
		}
	}
	v.mu.Unlock()
	usage := make(map[string]Usage, len(volumes))
	var errs []error
	for _, vol := range volumes {
		u, ok := v.opts.Plugins[vol.Plugin].(Usager)
		if !ok {
			continue
		}
		used, err := u.Usage(ctx, vol)
		if err != nil {
			errs = append(errs, fmt.Errorf("usage of volume %q: %w", vol.Name, err))
			continue
		}
		usage[vol.Name] = used
	}
	if len(errs) > 0 {
		return usage, join(errs)
	}
	return usage, nil
}
