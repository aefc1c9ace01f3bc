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

// Options configures a [Node]. A resource that is zero does not exist and has no readings.
type Options struct {
	Layout eviction.Layout
	Memory int64 // bytes
	Cache  int64 // bytes of Memory in reclaimable caches
	NodeFS int64 // bytes
	// Unused is the number of bytes of NodeFS in terminated containers and unused images.
	Unused int64
	PIDs   int64

	FreeDelay time.Duration // delay until removed data becomes free space
	KillDelay time.Duration // delay of the runtime's kill after the grace period
}

// Pod is a pod of a [Node]. The usage in Candidate is its usage at the start.
type Pod struct {
	eviction.Candidate
	MemoryPerSecond int64         // bytes
	LogsPerSecond   int64         // bytes
	TasksPerSecond  int64         // threads
	StopTime        time.Duration // time to terminate after the stop signal; it is killed after the grace period
}

// Event is an event in the history of a [Node], for example an eviction.
type Event struct {
	Time time.Time
	Kind string // "evict", "gone", "oom", "reclaim", "limit" or "kill"
	UID  string // UID of the pod, or the signal of a reclaim
}

// Node is a simulated node: an eviction.Observer and an eviction.Actor, also a MemoryLimiter and a Killer.
type Node struct {
	opts Options

	mu         sync.Mutex // guards the fields below
	pods       []*pod
	now        time.Time // simulated up to this time
	events     []Event
	cache      int64
	unused     int64
	freeing    []pendingSpace // removed data that is not free space yet
	hung       bool           // the runtime hangs
	observeErr error          // error of both observations
}

// pod is a running pod of a [Node] with its current usage.
type pod struct {
	Pod
	memory, logs, tasks float64
	limited             bool
	ended               chan struct{}
}

// pendingSpace is removed data that becomes free space later.
type pendingSpace struct {
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
func NewNode(opts Options) *Node {
	return &Node{opts: opts, now: time.Now(), cache: opts.Cache, unused: opts.Unused}
}

// StartPod starts the pod p. It panics if a pod with the same UID is already running.
func (n *Node) StartPod(p Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advanceTo(time.Now())
	if n.findPod(p.UID) != nil {
		panic("evictiontest: StartPod: a pod runs with UID " + p.UID)
	}
	p.Measured = true
	n.pods = append(n.pods, &pod{
		Pod: p, memory: float64(p.Memory), logs: float64(p.Logs.Bytes), tasks: float64(p.Tasks), ended: make(chan struct{}),
	})
}

// HangRuntime makes the simulated runtime hang if hung is true. Otherwise the runtime works again. While the runtime hangs,
// Evict blocks.
func (n *Node) HangRuntime(hung bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hung = hung
}

// FailObservations makes all later observations return err. If err is nil, observations succeed again.
func (n *Node) FailObservations(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observeErr = err
}

// Events returns all recorded events, oldest first.
func (n *Node) Events() []Event {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advanceTo(time.Now())
	return slices.Clone(n.events)
}

// EventUIDs returns the pod UIDs of the recorded events with this kind, oldest first.
func (n *Node) EventUIDs(kind string) (uids []string) {
	for _, e := range n.Events() {
		if e.Kind == kind {
			uids = append(uids, e.UID)
		}
	}
	return uids
}

// RunningPods returns the sorted UIDs of the running pods.
func (n *Node) RunningPods() (uids []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advanceTo(time.Now())
	for _, p := range n.pods {
		uids = append(uids, p.UID)
	}
	slices.Sort(uids)
	return uids
}

// Signals returns the current readings of the simulated node.
func (n *Node) Signals(ctx context.Context) (eviction.Observation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(ctx.Err(), n.observeErr); err != nil {
		return eviction.Observation{}, fmt.Errorf("observe node: %w", err)
	}
	n.advanceTo(time.Now())
	o := eviction.Observation{Layout: n.opts.Layout}
	add := func(s eviction.Signal, capacity int64, used float64, reclaimable int64) {
		if capacity > 0 {
			o.Readings = append(o.Readings, eviction.Reading{
				Signal: s, Capacity: capacity, Available: capacity - int64(used), Time: n.now, Reclaimable: reclaimable,
			})
		}
	}
	add(eviction.MemoryAvailable, n.opts.Memory, n.sumUsage(memoryOf)+float64(n.cache), n.cache)
	pending := int64(0)
	for _, f := range n.freeing {
		pending += f.bytes
	}
	add(eviction.NodeFSAvailable, n.opts.NodeFS, n.sumUsage(logsOf)+float64(n.unused+pending), 0)
	add(eviction.PIDAvailable, n.opts.PIDs, n.sumUsage(tasksOf), 0)
	return o, nil
}

// Candidates returns the running pods with their current usage.
func (n *Node) Candidates(ctx context.Context) (list []eviction.Candidate, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := errors.Join(ctx.Err(), n.observeErr); err != nil {
		return nil, fmt.Errorf("observe pods: %w", err)
	}
	n.advanceTo(time.Now())
	for _, p := range n.pods {
		c := p.Candidate
		c.Memory, c.Tasks, c.Logs.Bytes = int64(p.memory), int64(p.tasks), int64(p.logs)
		list = append(list, c)
	}
	return list, nil
}

// Reclaim implements [eviction.Actor]. A request for caches frees up to request.Missing bytes of them at once. Any other
// request frees the bytes of Options.Unused; they become available after Options.FreeDelay.
func (n *Node) Reclaim(_ context.Context, request eviction.Reclaim) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advanceTo(time.Now())
	n.recordEvent("reclaim", string(request.Signal))
	if request.Kind == eviction.ReclaimCache {
		took := min(n.cache, request.Missing)
		n.cache -= took
		return took, nil
	}
	took := n.unused
	n.unused = 0
	n.freeing = append(n.freeing, pendingSpace{n.now.Add(n.opts.FreeDelay), took})
	return took, nil
}

// Evict blocks until the pod of victim has terminated. The pod terminates after its StopTime, or after victim.Grace plus
// Options.KillDelay if that is earlier. While the runtime hangs, Evict blocks until ctx ends.
func (n *Node) Evict(ctx context.Context, victim eviction.Eviction) error {
	n.mu.Lock()
	n.advanceTo(time.Now())
	p := n.findPod(victim.UID)
	n.recordEvent("evict", victim.UID)
	if p == nil {
		n.mu.Unlock()
		return fmt.Errorf("evict pod %s: it does not run", victim.UID)
	}
	p.Evicting = true
	takes := min(p.StopTime, victim.Grace+n.opts.KillDelay)
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
		n.endPod(victim.UID, "gone")
		return nil
	case <-p.ended:
		if !hung {
			return nil
		}
	case <-ctx.Done():
	}
	<-ctx.Done() // the runtime hangs
	return fmt.Errorf("evict pod %s: %w", victim.UID, ctx.Err())
}

// LimitMemory stops the growth of the memory usage of the pod with this UID. It returns an error if the pod is not running.
func (n *Node) LimitMemory(_ context.Context, uid string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advanceTo(time.Now())
	p := n.findPod(uid)
	if p == nil {
		return fmt.Errorf("limit pod %s: it does not run", uid)
	}
	p.limited = true
	n.recordEvent("limit", uid)
	return nil
}

// Kill ends the running pod with this UID at once.
func (n *Node) Kill(_ context.Context, uid string) error {
	if !n.endPod(uid, "kill") {
		return fmt.Errorf("kill pod %s: it does not run", uid)
	}
	return nil
}

// endPod terminates the pod and records an event of this kind. If the pod is not running, it does nothing and returns false.
func (n *Node) endPod(uid, kind string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advanceTo(time.Now())
	return n.removePod(uid, kind)
}

func (n *Node) removePod(uid, kind string) bool {
	p := n.findPod(uid)
	if p == nil {
		return false
	}
	n.recordEvent(kind, uid)
	n.pods = slices.DeleteFunc(n.pods, func(q *pod) bool { return q == p })
	close(p.ended)
	return true
}

// advanceTo simulates the node from its current time up to now. If the memory is used up, it kills the pod that uses the
// most.
func (n *Node) advanceTo(now time.Time) {
	for n.now.Before(now) {
		step := now.Sub(n.now).Seconds()
		if left := float64(n.opts.Memory) - n.sumUsage(memoryOf); n.opts.Memory > 0 && n.memoryGrowth() > 0 {
			step = min(step, max(left-float64(n.cache), 0)/n.memoryGrowth())
		}
		for _, p := range n.pods {
			p.addUsage(step)
		}
		reached := n.now.Add(time.Duration(math.Ceil(step * float64(time.Second))))
		full := n.opts.Memory > 0 && n.sumUsage(memoryOf)+float64(n.cache) >= float64(n.opts.Memory)
		if !reached.Before(now) {
			reached = now
		}
		n.now = reached
		switch {
		case full && n.cache > 0: // the kernel reclaims caches before it kills
			n.cache = 0
		case full && len(n.pods) > 0:
			n.removePod(slices.MaxFunc(n.pods, func(a, b *pod) int { return cmp.Compare(a.memory, b.memory) }).UID, "oom")
		}
	}
	n.freeing = slices.DeleteFunc(n.freeing, func(f pendingSpace) bool { return !f.at.After(n.now) })
}

func (p *pod) addUsage(seconds float64) {
	if !p.limited {
		p.memory += float64(p.MemoryPerSecond) * seconds
	}
	p.logs += float64(p.LogsPerSecond) * seconds
	p.tasks += float64(p.TasksPerSecond) * seconds
}

// memoryGrowth returns the sum of the memory growth of all pods, in bytes per second.
func (n *Node) memoryGrowth() (sum float64) {
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

func (n *Node) sumUsage(of func(*pod) float64) (sum float64) {
	for _, p := range n.pods {
		sum += of(p)
	}
	return sum
}

func (n *Node) findPod(uid string) *pod {
	for _, p := range n.pods {
		if p.UID == uid {
			return p
		}
	}
	return nil
}

func (n *Node) recordEvent(kind, uid string) {
	n.events = append(n.events, Event{n.now, kind, uid})
}
