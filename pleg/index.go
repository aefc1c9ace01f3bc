// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import "github.com/seed81659283/nodeagent/cri"

// index finds what a new listing changes without building anything: it holds the state of every object as the
// sink knows it. Runtimes that list in a stable order are compared by position, the others by a map look-up.
type index struct {
	byID  map[string]*known
	order []*known // as last listed; nil where it was not known then
	apart bool     // this listing does not follow order
	round uint64   // counts listings
}

// known is one container or sandbox that the sink has been told of.
type known struct {
	object
	owner    *record // nil once the object is gone
	listed   uint64  // the last round that listed it
	replaced uint64  // the last replacement of the owner's objects that kept it
}

// sift compares a listing of all pods with the index, and sets changed on the record of each pod that differs; of
// finds or makes the record of a UID.
func (x *index) sift(s cri.Snapshot, of func(uid string) *record) {
	x.round++
	x.apart = false
	i, seen := 0, 0
	for o := range objects(s) {
		k := x.at(i, o.id)
		i++
		switch {
		case k == nil:
			of(o.uid).changed = x.round
			continue
		case k.uid != o.uid: // the object went from one pod to another
			k.owner.changed = x.round
			of(o.uid).changed = x.round
		case k.listed == x.round: // listed twice: the first one counts
			continue
		case k.state != o.state:
			k.owner.changed = x.round
		}
		if k.listed != x.round {
			k.listed = x.round
			seen++
		}
	}
	clear(x.order[i:])
	x.order = x.order[:i]
	if seen == len(x.byID) {
		return
	}
	for _, k := range x.byID {
		if k.listed != x.round {
			k.owner.changed = x.round
		}
	}
}

// at returns the known object with this ID, or nil, and remembers it as the i-th of the listing. A listing that has
// left the order of the last one is not expected to come back to it.
func (x *index) at(i int, id string) *known {
	switch {
	case i == len(x.order):
		x.order = append(x.order, nil)
	case !x.apart:
		if k := x.order[i]; k != nil && k.id == id && k.owner != nil {
			return k
		}
		x.apart = true
	}
	k := x.byID[id]
	x.order[i] = k
	return k
}

// replace makes the index hold next in place of prev for the pod of r.
func (x *index) replace(r *record, prev, next cri.Pod) {
	r.replaced++
	for o := range objects(parts(next)) {
		k, ok := x.byID[o.id]
		switch {
		case !ok:
			k = new(known)
			x.byID[o.id] = k
		case k.owner == r && k.replaced == r.replaced:
			continue // listed twice: the first one counts
		}
		k.object, k.owner, k.replaced = o, r, r.replaced
	}
	for o := range objects(parts(prev)) {
		if k, ok := x.byID[o.id]; ok && k.owner == r && k.replaced != r.replaced {
			k.owner = nil
			delete(x.byID, o.id)
		}
	}
}

// parts returns the objects of a pod as a snapshot.
func parts(p cri.Pod) cri.Snapshot {
	return cri.Snapshot{Time: p.Time, Sandboxes: p.Sandboxes, Containers: p.Containers}
}
