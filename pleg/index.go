// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "github.com/seed81659283/nodeagent/cri"

// index finds what a new listing changes without building anything: it holds the state of every object as the
// sink knows it. Runtimes that list in a stable order are compared by position, the others by a map look-up.
type objectIndex struct {
	byID      map[string]*indexedObject
	order     []*indexedObject // as last listed; nil where it was not known then
	reordered bool             // this listing does not follow order
	listing   uint64           // counts listings
}

// known is one container or sandbox that the sink has been told of.
type indexedObject struct {
	object
	owner       *podRecord // nil once the object is gone
	listed      uint64     // the last round that listed it
	replacement uint64     // the last replacement of the owner's objects that kept it
}

// sift compares a listing of all pods with the index, and sets changed on the record of each pod that differs; of
// finds or makes the record of a UID.
func (x *objectIndex) markChanged(s cri.Snapshot, of func(uid string) *podRecord) {
	x.listing++
	x.reordered = false
	i, seen := 0, 0
	for o := range listObjects(s) {
		k := x.lookUp(i, o.id)
		i++
		switch {
		case k == nil:
			of(o.uid).changed = x.listing
			continue
		case k.uid != o.uid: // the object went from one pod to another
			k.owner.changed = x.listing
			of(o.uid).changed = x.listing
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

// at returns the known object with this ID, or nil, and remembers it as the i-th of the listing. A listing that has
// left the order of the last one is not expected to come back to it.
func (x *objectIndex) lookUp(i int, id string) *indexedObject {
	switch {
	case i == len(x.order):
		x.order = append(x.order, nil)
	case !x.reordered:
		if k := x.order[i]; k != nil && k.id == id && k.owner != nil {
			return k
		}
		x.reordered = true
	}
	k := x.byID[id]
	x.order[i] = k
	return k
}

// replace makes the index hold next in place of prev for the pod of r.
func (x *objectIndex) replacePod(r *podRecord, prev, next cri.Pod) {
	r.replaced++
	for o := range listObjects(podSnapshot(next)) {
		k, ok := x.byID[o.id]
		switch {
		case !ok:
			k = new(indexedObject)
			x.byID[o.id] = k
		case k.owner == r && k.replacement == r.replaced:
			continue // listed twice: the first one counts
		}
		k.object, k.owner, k.replacement = o, r, r.replaced
	}
	for o := range listObjects(podSnapshot(prev)) {
		if k, ok := x.byID[o.id]; ok && k.owner == r && k.replacement != r.replaced {
			k.owner = nil
			delete(x.byID, o.id)
		}
	}
}

// parts returns the objects of a pod as a snapshot.
func podSnapshot(p cri.Pod) cri.Snapshot {
	return cri.Snapshot{Time: p.Time, Sandboxes: p.Sandboxes, Containers: p.Containers}
}
