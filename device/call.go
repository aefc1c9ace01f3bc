// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// maxAsks limits the GetPreferredAllocation calls for one need of a pod. A call is repeated if another pod takes a preferred device during the call.
const maxAsks = 3

// askPlugins completes the reservation of a pod. It calls GetPreferredAllocation and Allocate of the plugins, and saves the responses in the record.
func (a *Allocator) askPlugins(ctx context.Context, h *holding) error {
	for i := range h.needs {
		if err := a.askPreferred(ctx, h, i); err != nil {
			return err
		}
	}
	if err := a.chooseRest(h); err != nil {
		return err
	}
	for i := range h.needs {
		response, err := a.callAllocate(ctx, h, i)
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
	if err := a.saveRecord(); err != nil {
		a.setComplete(h, false)
		return err
	}
	return nil
}

// chooseRest lets the partners of a pod reserve their resources for the containers that a guess about devices had left without.
func (a *Allocator) chooseRest(h *holding) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h.chosen == len(h.pod.Containers) {
		return nil
	}
	return a.state.chooseDevices(h, len(h.claims), nil)
}

func (a *Allocator) setComplete(h *holding, complete bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h.complete, a.allocations = complete, nil
}

// askPreferred calls GetPreferredAllocation of a plugin for the request h.needs[at], and chooses the preferred devices. If
// another pod takes one of these devices during the call, it repeats the call, at most maxAsks times in all.
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

// findAsked returns the claim h.claims[at], and the plugin that must be asked for its preferred devices. A nil plugin means
// that no call is necessary. If chooseDevices has not yet reached this claim, findAsked first chooses its devices.
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
	return c, r.newestFeed(), nil
}

// keepOpen returns the first IDs in preferred that are also in c.Open, at most as many as c still needs. [Choice.Complete] uses these IDs.
func keepOpen(preferred []string, c Choice) []string {
	open := toSet(c.Open)
	preferred = slices.DeleteFunc(slices.Clone(preferred), func(id string) bool { return !open[id] })
	return preferred[:min(len(preferred), c.Count-len(c.Chosen))]
}

func containsAll(ids, wanted []string) bool {
	set := toSet(ids)
	return !slices.ContainsFunc(wanted, func(id string) bool { return !set[id] })
}

// callError converts err, the error of a plugin call; nil stays nil. If ctx, the context of the call, has ended, the caller can
// retry. Any other error becomes a [*Refusal].
func (h *holding) callError(ctx context.Context, call, resource string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("reserve devices of pod %s/%s: the plugin of resource %s did not answer %s in time: %w", h.pod.Namespace, h.pod.Name, resource, call, err)
	}
	return newRefusal(err)
}

// callAllocate calls Allocate of the plugin for the devices in h.claims[at], the claim of one container to one resource. It
// returns an error if the response is too large to be recorded.
func (a *Allocator) callAllocate(ctx context.Context, h *holding, at int) (Response, error) {
	a.mu.Lock()
	c := h.claims[at]
	f := a.state.resources[c.resource].newestFeed()
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

// Start returns the additions to the config of a container that holds devices, such as mounts and device nodes. Call it before each start of the
// container, after Reserve. It calls PreStartContainer of each plugin that has requested this call. The result includes the annotation
// [AnnotationDevices]. For a container without devices it is empty.
func (a *Allocator) Start(ctx context.Context, uid, container string) (Response, error) {
	h, claims, err := a.claimsOf(uid, container)
	if len(claims) == 0 || err != nil {
		return Response{}, err
	}
	restored := false
	for _, at := range claims {
		if h.claims[at].response == nil {
			// The record was lost: the container holds these devices according to its annotation.
			response, err := a.callAllocate(ctx, h, at)
			if err != nil {
				return Response{}, err
			}
			a.mu.Lock()
			h.claims[at].response = &response
			a.mu.Unlock()
			restored = true
		}
		if err := a.callPreStart(ctx, h, at); err != nil {
			return Response{}, err
		}
	}
	if restored {
		if err := a.saveRecord(); err != nil {
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

// claimsOf returns the claims of one container, as indexes in h.claims. h is nil if the pod is unknown. An incomplete reservation is an error.
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

// callPreStart calls PreStartContainer of the plugin for the devices in h.claims[at]. It does nothing if the plugin has not
// requested this call.
func (a *Allocator) callPreStart(ctx context.Context, h *holding, at int) error {
	a.mu.Lock()
	c := h.claims[at]
	r := a.state.resources[c.resource]
	f, wanted := r.newestFeed(), r != nil && r.options.PreStart // nil: the pod was released, and the resource dropped
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
