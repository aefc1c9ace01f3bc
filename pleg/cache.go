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

// maxEmptyAge is how long the cache keeps an entry without containers and sandboxes while no full relist succeeds.
const maxEmptyAge = time.Minute

// cache holds the last state of each pod and the time at which that state was valid.
type cache struct {
	mu sync.Mutex // guards all fields

	// lastFull is the start of the last successful full relist. Each pod state is at least this new, unless its entry is
	// outdated.
	lastFull   time.Time
	incomplete error // why pods may be missing here; nil after a successful full relist
	pods       map[string]*entry
	waiting    map[string]chan struct{} // by pod UID; closed when the pod may have become newer
	emptyUIDs  []string                 // UIDs of entries without containers and sandboxes
}

// entry is the cached state of one pod. An entry without containers and sandboxes is a pod that the runtime does not have, or one
// that was listed but never inspected.
type entry struct {
	pod         cri.Pod
	listed      cri.Pod   // last listed state, not yet inspected; used while pod is empty
	err         error     // why the newest state could not be read
	validAt     time.Time // the state was valid at this time or later
	outdated    bool      // a newer list may differ from pod, so that pod is only known to be valid at validAt
	inEmptyUIDs bool      // the UID is in cache.emptyUIDs
}

// lookUpLocked returns the cached state of the pod, valid at Pod.Time, and the error of its last inspection. The caller holds
// c.mu.
func (c *cache) lookUpLocked(uid string) (cri.Pod, error) {
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
	return c.lookUpLocked(uid)
}

// getNewer returns the cached state of a pod. If it is not newer than minTime, changed is closed when a newer one may be
// available.
func (c *cache) getNewer(uid string, minTime time.Time) (pod cri.Pod, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pod, err = c.lookUpLocked(uid)
	if pod.Time.After(minTime) {
		return pod, nil, err
	}
	ch, ok := c.waiting[uid]
	if !ok {
		ch = make(chan struct{})
		c.waiting[uid] = ch
	}
	return pod, ch, err
}

// listPods returns all pods that have containers or sandboxes, sorted by UID. After an error, pods may be missing.
func (c *cache) listPods() ([]cri.Pod, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods := make([]cri.Pod, 0, len(c.pods))
	for _, uid := range slices.Sorted(maps.Keys(c.pods)) {
		p, _ := c.lookUpLocked(uid)
		if isEmptyPod(p) {
			p = c.pods[uid].listed // it was never inspected
		}
		if !isEmptyPod(p) {
			pods = append(pods, p)
		}
	}
	return pods, c.incomplete
}

// recordListError stores the error of the last full list, and removes old entries without containers and sandboxes.
func (c *cache) recordListError(err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.incomplete = err
	// While full lists fail, only this removes the entries.
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

// update changes the cache entry of a pod, which it creates if needed, and wakes the callers that wait for a newer state.
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

// recordFullList records the start time of a successful full list, removes empty entries, and wakes all callers that wait for a
// newer state.
func (c *cache) recordFullList(start time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFull, c.incomplete = start, nil
	for _, uid := range c.emptyUIDs {
		if e, ok := c.pods[uid]; ok && e.isEmpty() {
			delete(c.pods, uid) // a pod without an entry now counts as removed
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

// markOutdated records a newer list of the pod, which is not evaluated yet.
func (e *entry) markOutdated(listed cri.Pod) {
	e.outdated = true
	// A job that failed may return an older list late. After an empty list, another list in progress may still contain the pod.
	if !isEmptyPod(listed) && !listed.Time.Before(e.listed.Time) {
		e.listed = listed
	}
}

func (e *entry) isEmpty() bool { return isEmptyPod(e.pod) && e.err == nil && !e.outdated }

func isEmptyPod(pod cri.Pod) bool { return len(pod.Sandboxes) == 0 && len(pod.Containers) == 0 }
