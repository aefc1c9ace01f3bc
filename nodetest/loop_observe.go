// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"slices"
	"time"

	"github.com/seed81659283/nodeagent/cri"
)

// relistPause is the time between the starts of two list calls for a pod, as of package pleg.
const relistPause = 10 * time.Millisecond

// reportChange schedules a list call for the pod, because its sandboxes or containers have changed in the runtime.
func (p *loopPod) reportChange() {
	if p.listing {
		p.listAgain = p.listAgain || p.snapshoted
		return
	}
	// The event of the change arrives with half the latency.
	p.planList(p.loop.options.Latency("GetContainerEvents", "") / 2)
}

// relist requests a list call for the pod. The call observes the runtime after this request, even if a list call is already
// running.
func (p *loopPod) relist() {
	if p.listing {
		p.listAgain = p.listAgain || p.calling
		return
	}
	p.planList(0)
}

// planList schedules a list call after delay, but not before relistPause has passed since the last list call.
func (p *loopPod) planList(delay time.Duration) {
	l := p.loop
	if !l.ready {
		return
	}
	p.listing, p.calling, p.snapshoted = true, false, false
	at := l.queue.now.Add(delay)
	if earliest := p.lastList.Add(relistPause); at.Before(earliest) {
		at = earliest
	}
	start := l.agentStarts
	l.queue.schedule(at, func() {
		if l.agentStarts == start {
			p.listPod()
		}
	})
}

// listPod observes the containers of the pod, after the latency of the list call. It then syncs the pod if a state has changed, or if a sync waits
// for this observation.
func (p *loopPod) listPod() {
	l, start := p.loop, p.loop.agentStarts
	p.lastList, p.calling = l.queue.now, true
	half := l.options.Latency("ListPod", p.id.UID) / 2
	l.queue.after(half, func() {
		if l.agentStarts != start || !l.ready {
			return
		}
		seen := p.snapshot()
		p.snapshoted = true
		l.queue.after(half+p.detailLatency(seen), func() {
			if l.agentStarts != start || !l.ready {
				return
			}
			seen.Time = p.lastList
			changed := hasChanged(&p.observed, &seen)
			p.observed, p.listing = seen, false
			if p.listAgain {
				p.listAgain = false
				p.planList(0)
			}
			if changed || p.awaiting && !p.busy {
				p.sync()
			}
		})
	})
}

// hasChanged reports whether a sandbox or container was added or removed, or has another state, between the observations
// before and now.
func hasChanged(before, now *cri.Pod) bool {
	sandbox := func(a, b cri.Sandbox) bool { return a.ID == b.ID && a.State == b.State }
	container := func(a, b cri.Container) bool { return a.ID == b.ID && a.State == b.State }
	return !slices.EqualFunc(before.Sandboxes, now.Sandboxes, sandbox) || !slices.EqualFunc(before.Containers, now.Containers, container)
}

// detailLatency returns the latency of the calls that read the details of changed sandboxes and containers. Objects whose ID
// or state differs from the last observation count as changed.
func (p *loopPod) detailLatency(seen cri.Pod) (d time.Duration) {
	for i := range seen.Sandboxes {
		if i >= len(p.observed.Sandboxes) || p.observed.Sandboxes[i].ID != seen.Sandboxes[i].ID || p.observed.Sandboxes[i].State != seen.Sandboxes[i].State {
			d = max(d, p.loop.options.Latency("PodSandboxStatus", seen.Sandboxes[i].ID))
		}
	}
	for i := range seen.Containers {
		c := &seen.Containers[i]
		old := slices.IndexFunc(p.observed.Containers, func(o cri.Container) bool { return o.ID == c.ID && o.State == c.State })
		if old < 0 && c.State != cri.ContainerCreated {
			d = max(d, p.loop.options.Latency("ContainerStatus", c.ID))
		}
	}
	return d
}
