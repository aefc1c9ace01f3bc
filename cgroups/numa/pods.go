// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"maps"
	"slices"
)

// maxChanges is the length of a chain of changes at which set copies all pods: the cost of the copy is shared by the changes, and each change costs a
// comparison of UIDs in get.
const maxChanges = 32

// podTable has the blocks of all pods by container. It is immutable: set returns a table that shares the unchanged pods with its receiver. A table is
// either a map of all pods, or the change of one pod to a previous table. Nil is the table without pods.
type podTable struct {
	all map[string]map[string][]Block // by UID; nil: the table is a change

	previous   *podTable
	changes    int // length of the chain: this change and the previous ones
	uid        string
	containers map[string][]Block // all of the pod; empty: the pod has none
}

// newPodTable returns a table with these pods, which the caller must not change any more.
func newPodTable(pods map[string]map[string][]Block) *podTable {
	if len(pods) == 0 {
		return nil
	}
	return &podTable{all: pods}
}

// get returns the blocks of a pod by container, which the caller must not change.
func (t *podTable) get(uid string) map[string][]Block {
	for ; t != nil; t = t.previous {
		if t.all != nil {
			return t.all[uid]
		}
		if t.uid == uid {
			return t.containers
		}
	}
	return nil
}

// set returns the table in which a pod has these containers, or is missing if there are none. If the previous change is of the pod, too, the new one
// replaces it, so that a pod which is reserved and released again leaves the table as it was.
func (t *podTable) set(uid string, containers map[string][]Block) *podTable {
	if t != nil && t.all == nil && t.uid == uid {
		t = t.previous
	}
	if len(containers) == 0 && len(t.get(uid)) == 0 {
		return t
	}
	next := &podTable{previous: t, changes: 1, uid: uid, containers: containers}
	if t != nil {
		next.changes += t.changes
	}
	if next.changes < maxChanges {
		return next
	}
	return newPodTable(next.collectPods())
}

// collectPods returns the blocks of all pods by UID and container, which the caller must not change.
func (t *podTable) collectPods() map[string]map[string][]Block {
	var chain []*podTable
	for ; t != nil && t.all == nil; t = t.previous {
		chain = append(chain, t)
	}
	var pods map[string]map[string][]Block
	if t != nil {
		pods = t.all
	}
	if len(chain) == 0 {
		return pods
	}
	if pods = maps.Clone(pods); pods == nil {
		pods = map[string]map[string][]Block{}
	}
	for _, c := range slices.Backward(chain) {
		if len(c.containers) > 0 {
			pods[c.uid] = c.containers
		} else {
			delete(pods, c.uid)
		}
	}
	return pods
}
