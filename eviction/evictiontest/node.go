// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package evictiontest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/eviction"
)

// Options of a [Node]. What is zero the node does not have, and there are no readings of it.
type Options struct {
	Layout eviction.Layout
	Memory int64 // bytes
	Cache  int64 // of these, what the kernel can take from caches
	NodeFS int64 // bytes
	// Unused is how much of NodeFS is in containers that have terminated and in unused images.
	Unused int64
	PIDs   int64

	FreeDelay time.Duration // how long what was removed from NodeFS takes to be free
	KillDelay time.Duration // how long the runtime takes to kill a pod at the end of its grace period
}

// Pod is a pod of a [Node]. What its candidate uses is what it begins with.
type Pod struct {
	eviction.Candidate
	MemoryPerSecond int64         // bytes
	LogsPerSecond   int64         // bytes
	TasksPerSecond  int64         // threads
	StopTime        time.Duration // how long it takes to end when it is told to; it is killed at the end of its grace period
}

// Event is something that happened to a node.
type Event struct {
	Time time.Time
	Kind string // "evict", "gone", "oom", "reclaim", "limit" or "kill"
	UID  string // of the pod, or the signal of a reclaim
}

// Node is a node in memory: an eviction.Observer and an eviction.Actor, also a MemoryLimiter and a Killer.
type Node struct {
	opts Options

	mu      sync.Mutex // guards what follows
	pods    []*pod
	now     time.Time // up to when everything has happened
	events  []Event
	cache   int64
	unused  int64
	freeing []freed // what was removed and is not free yet
	hung    bool    // the runtime
	broken  error   // of both observations
}

// pod is a pod that runs.
type pod struct {
	Pod
	memory, logs, tasks float64
	limited             bool
	gone                chan struct{}
}

// freed is space that becomes free later.
type freed struct {
	at    time.Time
	bytes int64
}

var (
	_ eviction.Observer      = (*Node)(nil)
	_ eviction.Actor         = (*Node)(nil)
	_ eviction.MemoryLimiter = (*Node)(nil)
	_ eviction.Killer        = (*Node)(nil)
)

// NewNode returns a node without pods.
func NewNode(o Options) *Node {
	return &Node{opts: o, now: time.Now(), cache: o.Cache, unused: o.Unused}
}

// StartPod runs a pod. It panics if there is one of this UID.
func (n *Node) StartPod(p Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance(time.Now())
	if n.find(p.UID) != nil {
		panic("evictiontest: Start: there is a pod " + p.UID)
	}
	p.Measured = true
	n.pods = append(n.pods, &pod{
		Pod: p, memory: float64(p.Memory), logs: float64(p.Logs.Bytes), tasks: float64(p.Tasks), gone: make(chan struct{}),
	})
}

// HangRuntime has the runtime answer no longer, or again. Evictions wait for it.
func (n *Node) HangRuntime(hung bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = hung
}

// FailObservations has observations fail with an error, or nil.
func (n *Node) FailObservations(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = err
}

// Events returns what has happened, in order.
func (n *Node) Events() []Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance(time.Now())
	return slices.Clone(n.events)
}

// EventUIDs returns the UIDs that something happened to, in order.
func (n *Node) EventUIDs(what string) (uids []string) {
	for _, e := range n.Events() {
		if e.Kind == what {
			uids = append(uids, e.UID)
		}
	}
	return uids
}

// RunningPods returns the UIDs of the pods that run, in order.
func (n *Node) RunningPods() (uids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance(time.Now())
	for _, p := range n.pods {
		uids = append(uids, p.UID)
	}
	slices.Sort(uids)
	return uids
}

// Signals returns what is left now.
func (n *Node) Signals(ctx context.Context) (eviction.Observation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(ctx.Err(), n.broken); err != nil {
		return eviction.Observation{}, fmt.Errorf("observe node: %w", err)
	}
	n.advance(time.Now())
	o := eviction.Observation{Layout: n.opts.Layout}
	add := func(s eviction.Signal, capacity int64, used float64, reclaimable int64) {
		if capacity > 0 {
			o.Readings = append(o.Readings, eviction.Reading{
				Signal: s, Capacity: capacity, Available: capacity - int64(used), Time: n.now, Reclaimable: reclaimable,
			})
		}
	}
	add(eviction.MemoryAvailable, n.opts.Memory, n.sum(memoryOf)+float64(n.cache), n.cache)
	pending := int64(0)
	for _, f := range n.freeing {
		pending += f.bytes
	}
	add(eviction.NodeFSAvailable, n.opts.NodeFS, n.sum(logsOf)+float64(n.unused+pending), 0)
	add(eviction.PIDAvailable, n.opts.PIDs, n.sum(tasksOf), 0)
	return o, nil
}

// Candidates returns the pods and what they use now.
func (n *Node) Candidates(ctx context.Context) (list []eviction.Candidate, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(ctx.Err(), n.broken); err != nil {
		return nil, fmt.Errorf("observe pods: %w", err)
	}
	n.advance(time.Now())
	for _, p := range n.pods {
		c := p.Candidate
		c.Memory, c.Tasks, c.Logs.Bytes = int64(p.memory), int64(p.tasks), int64(p.logs)
		list = append(list, c)
	}
	return list, nil
}

// Reclaim takes what there is.
func (n *Node) Reclaim(_ context.Context, r eviction.Reclaim) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance(time.Now())
	n.note("reclaim", string(r.Signal))
	if r.Kind == eviction.ReclaimCache {
		took := min(n.cache, r.Missing)
		n.cache -= took
		return took, nil
	}
	took := n.unused
	n.unused = 0
	n.freeing = append(n.freeing, freed{n.now.Add(n.opts.FreeDelay), took})
	return took, nil
}

// Evict ends a pod, when its time has come or at the end of its grace period.
func (n *Node) Evict(ctx context.Context, e eviction.Eviction) error {
	n.mu.Lock()
	n.advance(time.Now())
	p := n.find(e.UID)
	n.note("evict", e.UID)
	if p == nil {
		n.mu.Unlock()
		return fmt.Errorf("evict pod %s: it does not run", e.UID)
	}
	p.Evicting = true
	takes := min(p.StopTime, e.Grace+n.opts.KillDelay)
	hung := n.hung
	n.mu.Unlock()

	timer := time.NewTimer(takes)
	defer timer.Stop()
	killed := timer.C
	if hung {
		killed = nil
	}
	select {
	case <-killed:
		n.end(e.UID, "gone")
		return nil
	case <-p.gone:
		if !hung {
			return nil
		}
	case <-ctx.Done():
	}
	<-ctx.Done() // the runtime does not say
	return fmt.Errorf("evict pod %s: %w", e.UID, ctx.Err())
}

// LimitMemory keeps a pod from using more memory.
func (n *Node) LimitMemory(_ context.Context, uid string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance(time.Now())
	p := n.find(uid)
	if p == nil {
		return fmt.Errorf("limit pod %s: it does not run", uid)
	}
	p.limited = true
	n.note("limit", uid)
	return nil
}

// Kill ends a pod at once.
func (n *Node) Kill(_ context.Context, uid string) error {
	if !n.end(uid, "kill") {
		return fmt.Errorf("kill pod %s: it does not run", uid)
	}
	return nil
}

// end ends a pod, and reports whether it ran.
func (n *Node) end(uid, what string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance(time.Now())
	return n.remove(uid, what)
}

func (n *Node) remove(uid, what string) bool {
	p := n.find(uid)
	if p == nil {
		return false
	}
	n.note(what, uid)
	n.pods = slices.DeleteFunc(n.pods, func(q *pod) bool { return q == p })
	close(p.gone)
	return true
}

// advance lets the time pass up to now: where memory runs out on the way, who uses most ends.
func (n *Node) advance(now time.Time) {
	for n.now.Before(now) {
		step := now.Sub(n.now).Seconds()
		if left := float64(n.opts.Memory) - n.sum(memoryOf); n.opts.Memory > 0 && n.growth() > 0 {
			step = min(step, max(left-float64(n.cache), 0)/n.growth())
		}
		for _, p := range n.pods {
			p.grow(step)
		}
		reached := n.now.Add(time.Duration(math.Ceil(step * float64(time.Second))))
		full := n.opts.Memory > 0 && n.sum(memoryOf)+float64(n.cache) >= float64(n.opts.Memory)
		if !reached.Before(now) {
			reached = now
		}
		n.now = reached
		switch {
		case full && n.cache > 0: // the kernel takes caches before it kills
			n.cache = 0
		case full && len(n.pods) > 0:
			n.remove(slices.MaxFunc(n.pods, func(a, b *pod) int { return cmp.Compare(a.memory, b.memory) }).UID, "oom")
		}
	}
	n.freeing = slices.DeleteFunc(n.freeing, func(f freed) bool { return !f.at.After(n.now) })
}

func (p *pod) grow(seconds float64) {
	if !p.limited {
		p.memory += float64(p.MemoryPerSecond) * seconds
	}
	p.logs += float64(p.LogsPerSecond) * seconds
	p.tasks += float64(p.TasksPerSecond) * seconds
}

// growth is how much memory all pods take in a second.
func (n *Node) growth() (sum float64) {
	for _, p := range n.pods {
		if !p.limited {
			sum += float64(p.MemoryPerSecond)
		}
	}
	return sum
}

func memoryOf(p *pod) float64 { return p.memory }
func logsOf(p *pod) float64   { return p.logs }
func tasksOf(p *pod) float64  { return p.tasks }

func (n *Node) sum(of func(*pod) float64) (sum float64) {
	for _, p := range n.pods {
		sum += of(p)
	}
	return sum
}

func (n *Node) find(uid string) *pod {
	for _, p := range n.pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

func (n *Node) note(what, uid string) {
	n.events = append(n.events, Event{n.now, what, uid})
}
