// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Topology is the configuration of the kubelet's topology manager. The zero value ignores NUMA nodes.
type Topology struct {
	Policy   Policy
	PodScope bool              // merge the hints of a pod, not of each container
	PodLevel bool              // the gate PodLevelResourceManagers is on: a pod with pod-level resources that is not admitted has a message of its own
	Options  map[string]string // of the policy, topologyManagerPolicyOptions; see [NewMerger]
	Nodes    []NUMANode        // of the machine; required by all policies but None
}

// claim has the devices of one resource that one container holds.
type claim struct {
	need
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

	partners partners // of the reservation in progress
	chosen   int      // number of containers for which chooseDevices has chosen everything
	hints    []Hint   // merged hint of each chosen container, and of the next one; without nodes: any
}

// heldIDs returns the sorted IDs of the devices of a resource that a container holds, or with wholePod that the pod holds. Several containers of a pod may
// hold one device, which an init container has left.
func (h *holding) heldIDs(resource string, container int, wholePod bool) (ids []string) {
	for i := range h.claims {
		if c := &h.claims[i]; c.resource == resource && (wholePod || c.container == container) {
			ids = append(ids, c.ids()...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
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
	merger    *Merger
	podScope  bool
	podLevel  bool // Topology.PodLevel
}

// answer is the response of a plugin to GetPreferredAllocation.
type answer struct{ preferred []string }

// chooseDevices chooses devices for the needs of h from index fixed on, and lets the partners of h reserve their resources for the same containers. Earlier
// claims keep their devices. first is the plugin's response for the need at fixed; nil: the plugin was not called. On return all devices of the pod are
// in use; after an error, none, and the partners have reserved nothing.
//
// If a plugin will be called for its preferences, the devices of that need are a guess. If the guess leaves too few resources for a later container,
// chooseDevices stops before that need or container. The caller calls it again with the response, which may leave enough.
func (s *state) chooseDevices(h *holding, fixed int, first *answer) error {
	s.markFree(h)
	h.claims = h.claims[:fixed]
	s.markInUse(h.claims)
	if fixed < len(h.needs) {
		h.chosen = min(h.chosen, h.needs[fixed].container)
	}
	h.partners.undo(h.chosen)
	guessed := false
	for ; h.chosen < len(h.pod.Containers); h.chosen++ {
		err := s.mergeHints(h)
		for i := len(h.claims); err == nil && i < len(h.needs) && h.needs[i].container == h.chosen; i++ {
			var preferred []string
			isAnswered := first != nil && i == fixed
			if isAnswered {
				preferred = first.preferred
			}
			if err = s.pickDevices(h, h.needs[i], preferred); err == nil && !isAnswered && s.resources[h.needs[i].resource].isAsked(&h.claims[i].choice) {
				guessed = true
			}
		}
		if err == nil {
			err = h.partners.reserve(h.chosen, h.hints[h.chosen])
		}
		if err != nil && guessed {
			h.partners.undo(h.chosen)
			return nil
		}
		if err != nil {
			s.markFree(h)
			h.partners.undo(0)
			h.claims = nil
			return err
		}
	}
	return nil
}

// pickDevices chooses devices for need n, of the container h.chosen, and adds the claim to h. preferred has the IDs that the plugin prefers, if it was
// called.
func (s *state) pickDevices(h *holding, n need, preferred []string) error {
	if n.unregistered {
		return newRefusal(fmt.Errorf("cannot allocate unregistered device %s", n.resource))
	}
	r := s.resources[n.resource]
	choice, err := Pick(r.asPool(), Request{
		PodUID: h.pod.UID, Container: h.pod.Containers[n.container].Name, Count: n.count, Reusable: h.reusableIDs(n), Nodes: h.hints[h.chosen].Nodes,
	})
	if err != nil {
		return newRefusal(err)
	}
	c := claim{need: n, choice: choice}
	for _, id := range choice.Complete(preferred) {
		d := r.device(id)
		c.devices = append(c.devices, Device{ID: d.ID, Nodes: d.Nodes})
	}
	h.claims = append(h.claims, c)
	s.markInUse(h.claims[len(h.claims)-1:])
	return nil
}

// placePartners lets partners reserve their resources for a pod whose devices are reserved already, with the hints of these devices. held is the pod in the
// state; nil: it has no devices.
func (s *state) placePartners(pod *Pod, held *holding, list partners) (*holding, error) {
	h := &holding{pod: *pod, partners: list}
	for c := range pod.Containers {
		for i := 0; held != nil && i < len(held.claims); i++ {
			if claim := held.claims[i]; held.pod.Containers[claim.container].Name == pod.Containers[c].Name {
				claim.container = c
				h.needs, h.claims = append(h.needs, claim.need), append(h.claims, claim)
			}
		}
	}
	return h, s.chooseDevices(h, len(h.claims), nil)
}

// mergeHints sets h.hints[h.chosen], the merged hint of the next container. The hint stays if some needs of the container are fixed. With
// Topology.PodScope, all containers of the pod have one hint.
func (s *state) mergeHints(h *holding) error {
	isFixed := len(h.claims) > 0 && h.claims[len(h.claims)-1].container == h.chosen
	if isFixed && len(h.hints) > h.chosen {
		return nil
	}
	h.hints = h.hints[:h.chosen]
	if s.merger.policy == None {
		h.hints = append(h.hints, Hint{})
		return nil
	}
	if s.podScope && h.chosen > 0 {
		h.hints = append(h.hints, h.hints[0])
		return nil
	}
	hints, resources, err := s.deviceHints(h)
	if err != nil {
		return err
	}
	asked := h.chosen
	if s.podScope {
		asked = WholePod
	}
	best, admit := s.merger.Merge(append(hints, h.partners.hints(asked)...))
	if !admit {
		return s.newTopologyRefusal(&h.pod, describeHints(resources, hints))
	}
	h.hints = append(h.hints, best)
	return nil
}

// describeHints returns from which NUMA nodes the devices of each resource could come, for an explanation. hints may have more elements than resources.
func describeHints(resources []string, hints [][]Hint) string {
	var lines []string
	for i, name := range resources {
		var sets []string
		for _, h := range hints[i] {
			if len(sets) == MaxHintNodes {
				sets = append(sets, "more")
				break
			}
			sets = append(sets, h.Nodes.String())
		}
		switch {
		case len(sets) > 0:
			lines = append(lines, fmt.Sprintf("free devices of %s are on the NUMA nodes %s", name, strings.Join(sets, " or ")))
		case hints[i] != nil:
			lines = append(lines, fmt.Sprintf("too few devices of %s are free", name))
		}
	}
	return strings.Join(lines, "; ")
}

// deviceHints returns the hints of each resource that the next container needs, or with Topology.PodScope that the pod needs, and the names of these
// resources.
func (s *state) deviceHints(h *holding) (hints [][]Hint, resources []string, err error) {
	asked := map[string]bool{}
	for i, n := range h.needs {
		request := Request{Count: n.count}
		switch {
		case s.podScope:
			request.Count = h.pod.totalDevices(n.resource)
		case n.container != h.chosen:
			continue
		default:
			request.Reusable = h.reusableIDs(n)
		}
		if asked[n.resource] || n.unregistered {
			continue
		}
		asked[n.resource] = true
		if i < len(h.claims) {
			request.Held = h.heldIDs(n.resource, h.claims[i].container, s.podScope)
		}
		list, err := Hints(s.resources[n.resource].asPool(), request, s.merger.machine)
		if err != nil {
			return nil, nil, newRefusal(err)
		}
		hints, resources = append(hints, list), append(resources, n.resource)
	}
	return hints, resources, nil
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
