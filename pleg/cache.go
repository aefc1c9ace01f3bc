// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pleg

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// keepBlank is how long an entry without objects is kept while no full relist succeeds.
const maxEmptyAge = time.Minute

// cache holds each pod as last seen, and how new that is.
type cache struct {
	mu sync.Mutex // guards all fields

	// global is the start of the last full relist: every pod is at least as new, but those marked behind.
	lastFull   time.Time
	incomplete error // why there may be pods that are not here; nil after a full relist that succeeded
	pods       map[string]*entry
	waiting    map[string]chan struct{} // by pod UID; closed when the pod may have become newer
	emptyUIDs  []string                 // pods whose entry says only that they were not there
}

// entry is one pod of the cache. An entry without objects stands for a pod that is not there, or that was listed but
// never inspected.
type entry struct {
	pod         cri.Pod
	listed      cri.Pod   // what was listed last and is yet to be inspected, without details; counts where pod has no objects
	err         error     // why the pod is older than it could be
	validAt     time.Time // the pod was like this at that time or later
	outdated    bool      // a newer listing differs or may differ: global says nothing about this pod
	inEmptyUIDs bool      // is in cache.blank
}

// lookup returns a pod with the time it is known to be valid for, and the error of its last inspection.
func (c *cache) lookup(uid string) (cri.Pod, error) {
	e, ok := c.pods[uid]
	if !ok {
		return cri.Pod{PodIdentity: cri.PodIdentity{UID: uid}, Time: c.lastFull}, nil
	}
	p := e.pod
	p.Time = e.validAt
	if !e.outdated && c.lastFull.After(e.validAt) {
		p.Time = c.lastFull
	}
	return p, e.err
}

func (c *cache) get(uid string) (cri.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lookup(uid)
}

// newer returns the pod if it is newer than t. If not, it returns a channel that is closed when it may have become so.
func (c *cache) getNewer(uid string, t time.Time) (p cri.Pod, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err = c.lookup(uid)
	if p.Time.After(t) {
		return p, nil, err
	}
	ch, ok := c.waiting[uid]
	if !ok {
		ch = make(chan struct{})
		c.waiting[uid] = ch
	}
	return p, ch, err
}

// all returns every pod that has an object, by UID, and those that were listed and never inspected as they were listed.
// The error says why these may not be all pods.
func (c *cache) listPods() ([]cri.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := make([]cri.Pod, 0, len(c.pods))
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		p, _ := c.lookup(uid)
		if isEmptyPod(p) {
			p = c.pods[uid].listed
		}
		if !isEmptyPod(p) {
			pods = append(pods, p)
		}
	}
	return pods, c.incomplete
}

// fail notes why there is no newer listing, and drops entries of pods that were not there for a while: no listing will.
func (c *cache) recordListError(err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incomplete = err
	c.emptyUIDs = slices.DeleteFunc(c.emptyUIDs, func(uid string) bool {
		e, ok := c.pods[uid]
		switch {
		case !ok:
		case !e.isEmpty():
			e.inEmptyUIDs = false
		case now.Sub(e.validAt) < maxEmptyAge:
			return false
		default:
			delete(c.pods, uid)
		}
		return true
	})
}

// update changes the entry of a pod, made where there is none, and wakes those who wait for it.
func (c *cache) update(uid string, change func(*entry)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.pods[uid]
	if !ok {
		e = &entry{pod: cri.Pod{PodIdentity: cri.PodIdentity{UID: uid}}}
		c.pods[uid] = e
	}
	change(e)
	if e.isEmpty() && !e.inEmptyUIDs {
		e.inEmptyUIDs = true
		c.emptyUIDs = append(c.emptyUIDs, uid)
	}
	if ch, ok := c.waiting[uid]; ok {
		close(ch)
		delete(c.waiting, uid)
	}
}

// advance sets the global time, wakes all who wait, and drops the entries of pods that are not there: for these
// the global time says it all.
func (c *cache) recordFullList(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFull, c.incomplete = t, nil
	for _, uid := range c.emptyUIDs {
		if e, ok := c.pods[uid]; ok && e.isEmpty() {
			delete(c.pods, uid)
		} else if ok {
			e.inEmptyUIDs = false
		}
	}
	c.emptyUIDs = c.emptyUIDs[:0]
	for _, ch := range c.waiting {
		close(ch)
	}
	clear(c.waiting)
}

// setBehind marks a pod whose newest listing is yet to be looked into. A listing that does not have it says nothing: another
// one under way may. Nor does one that is older than what is known: a job that failed had begun with it.
func (e *entry) markOutdated(listed cri.Pod) {
	e.outdated = true
	if !isEmptyPod(listed) && !listed.Time.Before(e.listed.Time) {
		e.listed = listed
	}
}

func (e *entry) isEmpty() bool { return isEmptyPod(e.pod) && e.err == nil && !e.outdated }

func isEmptyPod(p cri.Pod) bool { return len(p.Sandboxes) == 0 && len(p.Containers) == 0 }
