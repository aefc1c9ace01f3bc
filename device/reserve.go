// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"time"
)

// Topology is the configuration of the kubelet's topology manager. The zero value ignores NUMA nodes.
type Topology struct {
	Policy   Policy
	PodScope bool // merge the hints of a pod, not of each container
	Machine  Mask // NUMA nodes of the machine; required by all policies but None
}

// claim has the devices of one resource that one container holds.
type claim struct {
	need
	hint     Mask      // NUMA nodes of the merged hint; zero: any
	choice   Choice    // from [Pick], until the devices are final
	devices  []Device  // ID and NUMA nodes; Healthy is not kept
	response *Response // of Allocate; nil: Allocate was not called
}

func (c *claim) ids() []string {
	ids := make([]string, len(c.devices))
	for i := range c.devices {
		ids[i] = c.devices[i].ID
	}
	return ids
}

// holding has the needs and claims of one pod.
type holding struct {
	pod      Pod
	needs    []need
	claims   []claim // one for each need, in this order; fewer while a plugin is called for its preferences
	complete bool    // Allocate has returned for all claims, and the record is saved
}

// reusableIDs returns the device IDs of earlier init containers, which the container of n can reuse, in the order of their selection. Source:
// devicesToReuse in pkg/kubelet/cm/devicemanager/manager.go.
func (h *holding) reusableIDs(n need) (ids []string) {
	for i := range h.claims {
		c := &h.claims[i]
		if c.resource != n.resource || c.container >= n.container {
			continue
		}
		taken := toSet(c.ids())
		ids = slices.DeleteFunc(ids, func(id string) bool { return taken[id] })
		if h.pod.Containers[c.container].Kind == Init {
			ids = append(ids, c.ids()...)
		}
	}
	return ids
}

// state is the state of all resources and pods. Its methods do no I/O.
type state struct {
	resources map[string]*resource
	pods      map[string]*holding // by UID
	dropped   map[string]bool     // names that dropForgotten has removed: no other manager has these resources
	topology  Topology
}

// answer is the response of a plugin to GetPreferredAllocation.
type answer struct{ preferred []string }

// chooseDevices chooses devices for the needs of h from index fixed on; earlier claims keep their devices. first is the plugin's response for the
// need at fixed; nil: the plugin was not called. On return all devices of the pod are in use; after an error, none.
//
// If a plugin will be called for its preferences, the devices of that need are a guess. If the guess leaves too few devices for a later need,
// chooseDevices stops before that need. The caller calls it again with the response, which may leave enough.
func (s *state) chooseDevices(h *holding, fixed int, first *answer) error {
	s.markFree(h)
	h.claims = h.claims[:fixed]
	s.markInUse(h.claims)
	guessed := false
	for i := fixed; i < len(h.needs); i++ {
		n := h.needs[i]
		var preferred []string
		if first != nil && i == fixed {
			preferred = first.preferred
		}
		hint, err := s.mergeHints(h, i)
		if err == nil {
			err = s.pickDevices(h, n, hint, preferred)
		}
		if err != nil && guessed {
			return nil
		}
		if err != nil {
			s.markFree(h)
			h.claims = nil
			return err
		}
		if isAnswered := first != nil && i == fixed; !isAnswered && s.resources[n.resource].isAsked(&h.claims[i].choice) {
			guessed = true
		}
	}
	return nil
}

// pickDevices chooses devices for need n and adds the claim to h. hint has the NUMA nodes of the merged hint. preferred has the IDs that the plugin
// prefers, if it was called.
func (s *state) pickDevices(h *holding, n need, hint Mask, preferred []string) error {
	if n.unregistered {
		return newRefusal(fmt.Errorf("cannot allocate unregistered device %s", n.resource))
	}
	r := s.resources[n.resource]
	choice, err := Pick(r.asPool(), Request{
		PodUID: h.pod.UID, Container: h.pod.Containers[n.container].Name, Count: n.count, Reusable: h.reusableIDs(n), Nodes: hint,
	})
	if err != nil {
		return newRefusal(err)
	}
	c := claim{need: n, hint: hint, choice: choice}
	for _, id := range choice.Complete(preferred) {
		d := r.device(id)
		c.devices = append(c.devices, Device{ID: d.ID, Nodes: d.Nodes})
	}
	h.claims = append(h.claims, c)
	s.markInUse(h.claims[len(h.claims)-1:])
	return nil
}

// mergeHints returns the NUMA nodes of the merged hint for the need at index at. All needs of one container have one hint. With Topology.PodScope,
// all needs of the pod have one hint.
func (s *state) mergeHints(h *holding, at int) (Mask, error) {
	if s.topology.Policy == None {
		return 0, nil
	}
	if at > 0 && (s.topology.PodScope || h.needs[at-1].container == h.needs[at].container) {
		return h.claims[at-1].hint, nil
	}
	var hints [][]Hint
	asked := map[string]bool{}
	for _, n := range h.needs[at:] {
		request := Request{Count: n.count}
		if s.topology.PodScope {
			request.Count = h.pod.totalDevices(n.resource)
		} else if n.container == h.needs[at].container {
			request.Reusable = h.reusableIDs(n)
		} else {
			break
		}
		if asked[n.resource] || n.unregistered {
			continue
		}
		asked[n.resource] = true
		list, err := Hints(s.resources[n.resource].asPool(), request, s.topology.Machine)
		if err != nil {
			return 0, newRefusal(err)
		}
		hints = append(hints, list)
	}
	best, admit := s.topology.Policy.Merge(hints, s.topology.Machine)
	if !admit {
		return 0, newTopologyRefusal()
	}
	return best.Nodes, nil
}

// markInUse marks the devices of claims as in use.
func (s *state) markInUse(claims []claim) {
	for i := range claims {
		r := s.resources[claims[i].resource]
		for _, d := range claims[i].devices {
			r.inUse[d.ID] = true
		}
	}
}

// markFree marks the devices of h as free. A device that another pod holds too stays in use: a record may have such a conflict.
func (s *state) markFree(h *holding) {
	free := map[string]map[string]bool{}
	for i := range h.claims {
		if free[h.claims[i].resource] == nil {
			free[h.claims[i].resource] = map[string]bool{}
		}
		for _, d := range h.claims[i].devices {
			free[h.claims[i].resource][d.ID] = true
		}
	}
	for _, other := range s.pods {
		for i := range other.claims {
			if ids := free[other.claims[i].resource]; ids != nil && other != h {
				for _, d := range other.claims[i].devices {
					delete(ids, d.ID)
				}
			}
		}
	}
	for name, ids := range free {
		for id := range ids {
			delete(s.resources[name].inUse, id)
		}
	}
}

// holders returns the UIDs of the pods that hold a device of a resource whose ID is in ids, in ascending order.
func (s *state) holders(resource string, ids map[string]bool) (uids []string) {
	if len(ids) == 0 {
		return nil
	}
	for uid, h := range s.pods {
		if slices.ContainsFunc(h.claims, func(c claim) bool {
			return c.resource == resource && slices.ContainsFunc(c.devices, func(d Device) bool { return ids[d.ID] })
		}) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// listedSize returns the memory of the devices of all resources, in bytes.
func (s *state) listedSize() (bytes int) {
	for _, r := range s.resources {
		bytes += r.size
	}
	return bytes
}

// forgetDevices removes the devices of each resource without a plugin for more than [StopGrace]. changed is true if a resource has changed. next is
// the time of the next removal; zero: none.
func (s *state) forgetDevices(now time.Time) (changed bool, next time.Time) {
	for _, r := range s.resources {
		if r.forgetDevices(now) {
			changed = true
		}
		if due := r.stopped.Add(StopGrace + 1); len(r.feeds) == 0 && due.After(now) && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	return changed, next
}

// dropGrace is how long a resource without devices is kept, so that the Node status reports zero devices.
const dropGrace = time.Minute

// dropForgotten removes the resources that no pod needs and that have had no plugin for more than [StopGrace] plus dropGrace.
func (s *state) dropForgotten(now time.Time) {
	needed := map[string]bool{}
	for _, h := range s.pods {
		for i := range h.needs {
			needed[h.needs[i].resource] = true
		}
	}
	for name, r := range s.resources {
		if needed[name] || !r.isForgotten(now.Add(-dropGrace)) {
			continue
		}
		delete(s.resources, name)
		if r.reported {
			s.dropped[name] = true
		}
	}
}
