// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "github.com/seed81659283/nodeagent/cri"

// objectIndex holds the published state of each container and sandbox. It compares a new list with these states without
// allocating memory. A list in the order of the previous one is compared by position, other lists by a map lookup.
type objectIndex struct {
	byID      map[string]*indexedObject
	order     []*indexedObject // in the order of the last list; nil: an unknown object
	reordered bool             // the current list has left the order of the previous one
	listing   uint64           // number of the current list
}

// indexedObject is a container or sandbox whose state was published as an event.
type indexedObject struct {
	object
	owner       *podRecord // nil after the object was removed
	listed      uint64     // number of the last list that contained the object
	replacement uint64     // number of the last replacePod call of the owner that kept it
}

// markChanged marks the records of the pods that differ between a list of all pods and the published states.
func (x *objectIndex) markChanged(snapshot cri.Snapshot, recordOf func(uid string) *podRecord) {
	x.listing++
	x.reordered = false
	i, seen := 0, 0
	for o := range listObjects(snapshot) {
		k := x.lookUp(i, o.id)
		i++
		switch {
		case k == nil:
			recordOf(o.uid).changed = x.listing
			continue
		case k.uid != o.uid: // the object moved to another pod
			k.owner.changed = x.listing
			recordOf(o.uid).changed = x.listing
		case k.listed == x.listing: // listed twice: the first one counts
			continue
		case k.state != o.state:
			k.owner.changed = x.listing
		}
		if k.listed != x.listing {
			k.listed = x.listing
			seen++
		}
	}
	clear(x.order[i:])
	x.order = x.order[:i]
	if seen == len(x.byID) {
		return
	}
	for _, k := range x.byID {
		if k.listed != x.listing {
			k.owner.changed = x.listing
		}
	}
}

// lookUp returns the container or sandbox with this ID, or nil. position is its position in the current list.
func (x *objectIndex) lookUp(position int, id string) *indexedObject {
	switch {
	case position == len(x.order):
		x.order = append(x.order, nil)
	case !x.reordered:
		// The list mostly has the order of the previous one: no map access.
		if k := x.order[position]; k != nil && k.id == id && k.owner != nil {
			return k
		}
		x.reordered = true
	}
	k := x.byID[id]
	x.order[position] = k
	return k
}

// replacePod updates the index after the publication of a new state of a pod. prev is its previous published state.
func (x *objectIndex) replacePod(rec *podRecord, prev, next cri.Pod) {
	rec.replaced++
	for o := range listObjects(podSnapshot(next)) {
		k, ok := x.byID[o.id]
		switch {
		case !ok:
			k = new(indexedObject)
			x.byID[o.id] = k
		case k.owner == rec && k.replacement == rec.replaced:
			continue // listed twice: the first one counts
		}
		k.object, k.owner, k.replacement = o, rec, rec.replaced
	}
	for o := range listObjects(podSnapshot(prev)) {
		if k, ok := x.byID[o.id]; ok && k.owner == rec && k.replacement != rec.replaced {
			k.owner = nil
			delete(x.byID, o.id)
		}
	}
}

// podSnapshot returns a snapshot with only the sandboxes and containers of the pod.
func podSnapshot(pod cri.Pod) cri.Snapshot {
	return cri.Snapshot{Time: pod.Time, Sandboxes: pod.Sandboxes, Containers: pod.Containers}
}
