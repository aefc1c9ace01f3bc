// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// maxAsks is the number of GetPreferredAllocation calls for one need, when other pods take preferred devices in the meantime.
const maxAsks = 3

// askPlugins completes a reservation: it asks the plugins which devices they prefer, prepares the devices, and records the answers.
func (a *Allocator) askPlugins(ctx context.Context, h *holding) error {
	for i := range h.needs {
		if err := a.askPreferred(ctx, h, i); err != nil {
			return err
		}
	}
	for i := range h.needs {
		response, err := a.allocate(ctx, h, i)
		if err != nil {
			return err
		}
		a.mu.Lock()
		h.claims[i].response = &response
		a.mu.Unlock()
	}
	if err := a.checkConflicts(h); err != nil {
		return newRefusal(err)
	}
	a.setComplete(h, true)
	if err := a.save(); err != nil {
		a.setComplete(h, false)
		return err
	}
	return nil
}

func (a *Allocator) setComplete(h *holding, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.complete, a.allocations = complete, nil
}

// askPreferred asks a plugin which devices it prefers for the need at position at, and takes them unless another pod has taken one of
// them meanwhile. Then it asks again.
func (a *Allocator) askPreferred(ctx context.Context, h *holding, at int) error {
	for range maxAsks {
		c, f, err := a.findAsked(h, at)
		if err != nil || f == nil {
			return err
		}
		limited, cancel := context.WithTimeout(ctx, a.opts.Timeouts.Preferred)
		ids, err := f.plugin.Preferred(limited, c.choice.Open, c.choice.Chosen, c.count)
		err = h.callError(limited, "GetPreferredAllocation", c.resource, err)
		cancel()
		if err != nil {
			return err
		}
		a.mu.Lock()
		err = a.state.chooseDevices(h, at, &answer{preferred: ids})
		taken := err == nil && !containsAll(h.claims[at].ids(), keepOpen(ids, c.choice))
		a.mu.Unlock()
		if err != nil || !taken {
			return err
		}
	}
	return nil
}

// findAsked returns the claim at position at, and the plugin that is asked which devices it prefers, or nil. The claim is chosen first if guesses for earlier
// needs left too few devices, and their plugins have gone meanwhile.
func (a *Allocator) findAsked(h *holding, at int) (claim, *feed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if at >= len(h.claims) {
		if err := a.state.chooseDevices(h, len(h.claims), nil); err != nil {
			return claim{}, nil, err
		}
	}
	c := h.claims[at]
	r := a.state.resources[c.resource]
	if !r.isAsked(&c.choice) {
		return c, nil, nil // without a plugin, Allocate fails
	}
	return c, r.newest(), nil
}

// keepOpen returns the preferred IDs that [Choice.Complete] uses.
func keepOpen(preferred []string, c Choice) []string {
	open := toSet(c.Open)
	preferred = slices.DeleteFunc(slices.Clone(preferred), func(id string) bool { return !open[id] })
	return preferred[:min(len(preferred), c.Count-len(c.Chosen))]
}

func containsAll(ids, wanted []string) bool {
	set := toSet(ids)
	return !slices.ContainsFunc(wanted, func(id string) bool { return !set[id] })
}

// callError returns the error of a plugin's call for the pod: a refusal, or an error to try again if the plugin did not answer before the end
// of ctx.
func (h *holding) callError(ctx context.Context, call, resource string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("reserve devices of pod %s/%s: the plugin of resource %s did not answer %s in time: %w", h.pod.Namespace, h.pod.Name, resource, call, err)
	}
	return newRefusal(err)
}

// allocate calls Allocate for the claim of a pod at position at.
func (a *Allocator) allocate(ctx context.Context, h *holding, at int) (Response, error) {
	a.mu.Lock()
	c := h.claims[at]
	f := a.state.resources[c.resource].newest()
	a.mu.Unlock()
	if f == nil {
		return Response{}, fmt.Errorf("allocate devices of resource %s for pod %s/%s: its plugin is not connected any more", c.resource, h.pod.Namespace, h.pod.Name)
	}
	limited, cancel := context.WithTimeout(ctx, a.opts.Timeouts.Allocate)
	defer cancel()
	begin := time.Now()
	response, err := f.plugin.Allocate(limited, c.ids())
	if hook := a.opts.Hooks.AllocateCalled; hook != nil {
		hook(c.resource, time.Since(begin), err)
	}
	if err == nil {
		err = response.checkSize(c.resource)
	}
	return response, h.callError(limited, "Allocate", c.resource, err)
}

// Start returns what the config of a container needs to use its devices, at each start of the container. It calls PreStartContainer of the
// plugins that want it. The annotation [AnnotationDevices] is among the result's annotations. The result is empty for a container that
// holds no devices. The pod must have been reserved.
func (a *Allocator) Start(ctx context.Context, uid, container string) (Response, error) {
	h, claims, err := a.claimsOf(uid, container)
	if len(claims) == 0 || err != nil {
		return Response{}, err
	}
	restored := false
	for _, at := range claims {
		if h.claims[at].response == nil {
			// The record was lost: the container holds these devices according to its annotation.
			response, err := a.allocate(ctx, h, at)
			if err != nil {
				return Response{}, err
			}
			a.mu.Lock()
			h.claims[at].response = &response
			a.mu.Unlock()
			restored = true
		}
		if err := a.preStart(ctx, h, at); err != nil {
			return Response{}, err
		}
	}
	if restored {
		if err := a.save(); err != nil {
			return Response{}, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	merged, err := mergeResponses(h, claims, a.opts.Kubelet.IgnoreConflicts)
	if err != nil {
		return Response{}, err
	}
	merged.addNote(h, claims)
	return merged, nil
}

// claimsOf returns the positions of the claims of one container.
func (a *Allocator) claimsOf(uid, container string) (h *holding, claims []int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h = a.state.pods[uid]
	switch {
	case h == nil:
		return nil, nil, nil
	case !h.complete:
		return nil, nil, fmt.Errorf("start container %s of pod %s/%s: its devices are not reserved yet: wait until Reserve returns", container, h.pod.Namespace, h.pod.Name)
	}
	for i := range h.claims {
		if h.pod.Containers[h.claims[i].container].Name == container {
			claims = append(claims, i)
		}
	}
	return h, claims, nil
}

// preStart calls PreStartContainer for the claim at position at, if the plugin wants it.
func (a *Allocator) preStart(ctx context.Context, h *holding, at int) error {
	a.mu.Lock()
	c := h.claims[at]
	r := a.state.resources[c.resource]
	f, wanted := r.newest(), r != nil && r.options.PreStart // nil: the pod was released, and the resource dropped
	a.mu.Unlock()
	if !wanted {
		return nil
	}
	if f == nil {
		return fmt.Errorf("start container %s of pod %s/%s: the plugin of resource %s, which wants PreStartContainer, is not connected",
			h.pod.Containers[c.container].Name, h.pod.Namespace, h.pod.Name, c.resource)
	}
	ctx, cancel := context.WithTimeout(ctx, a.opts.Timeouts.PreStart)
	defer cancel()
	return f.plugin.PreStart(ctx, c.ids())
}
