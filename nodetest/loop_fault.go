// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/nodetest/machine"
)

// Inject applies the fault f to all runtime calls that match it, until remove is called. A call that hangs never returns:
// its pod waits until the agent restarts.
func (l *Loop) Inject(f Fault) (remove func()) { return l.faults.addFault(f) }

// CutNetwork disconnects the node from its API server, or connects it again if cut is false. While disconnected, the agent
// observes no added or deleted pods. The error is always nil.
func (l *Loop) CutNetwork(cut bool) error {
	l.cut = cut
	if cut {
		return nil
	}
	delayed := l.delayed
	l.delayed = nil
	for _, change := range delayed {
		change()
	}
	return nil
}

// JumpClock sets the wall clock of the machine forward by d, or back if d is negative. Time stamps of the runtime and of
// statuses jump; timers and the ages of processes do not.
func (l *Loop) JumpClock(d time.Duration) { l.jumped += d }

// FillDisk fills a disk of the machine with files of the given total size, as [Node.FillDisk] does.
func (l *Loop) FillDisk(disk machine.DiskName, bytes int64) {
	fillDisk(l.kernel, disk, bytes)
	l.kernel.recordChange()
}

// RestartAgent stops the agent, waits for the duration down and starts a new agent. Containers keep running. The error is
// always nil.
func (l *Loop) RestartAgent(down time.Duration) error {
	l.stopAgent()
	l.Advance(down)
	l.startAgent()
	l.Advance(agentDelay + agentPause)
	return nil
}

// Reboot stops the agent and kills all containers. It waits for the duration down and starts a new agent. The error is
// always nil.
func (l *Loop) Reboot(down time.Duration) error {
	l.stopAgent()
	for _, p := range l.pods {
		for _, c := range p.containers {
			p.exitContainer(c, critest.Exit{Code: 255})
		}
		for _, sb := range p.sandboxes {
			sb.State, sb.IPs = cri.SandboxNotReady, nil
		}
	}
	l.Advance(down)
	l.startAgent()
	l.Advance(agentDelay + agentPause)
	return nil
}

// stopAgent stops the agent at once. It discards the results of running calls for pods.
func (l *Loop) stopAgent() {
	l.ready = false
	l.agentStarts++
	l.evictor.passID++
	for _, p := range l.pods {
		p.resetWorker()
	}
}

// startAgent starts an agent. After agentDelay the agent runs the first pass of the evictor. After the latency of its first list calls, it calls
// listAll.
func (l *Loop) startAgent() {
	l.agentStarts++
	start := l.agentStarts
	l.evictor = loopEvictor{loop: l, stalled: l.evictor.stalled}
	l.queue.after(agentDelay, func() {
		l.agentStarted = l.queue.now
		l.evictor.passAt(l.queue.now)
		lists := startLists * l.options.Latency("List", "")
		if slices.ContainsFunc(l.pods, func(p *loopPod) bool { return len(p.containers) > 0 }) {
			lists += l.options.Latency("ContainerStatus", "")
		}
		l.queue.after(lists, func() {
			if l.agentStarts == start {
				l.listAll()
			}
		})
	})
}

// startLists is the number of list calls until an agent syncs the first pod.
const startLists = 2

// listAll completes the start of an agent: it observes the containers of all pods and syncs each pod.
func (l *Loop) listAll() {
	l.ready, l.statusRead = true, time.Time{}
	pods := slices.Clone(l.pods)
	slices.SortStableFunc(pods, func(a, b *loopPod) int { return compareIdentities(a.id, b.id) })
	for _, p := range pods {
		p.resetWorker()
		p.admitted = p.admitted || len(p.containers)+len(p.sandboxes) > 0
		p.eviction, p.rejection = nil, nil // a terminal phase remains
		p.observed = p.snapshot()
		p.lastSync = time.Time{}
		p.sync()
	}
}

// compareIdentities orders pods by namespace and name.
func compareIdentities(a, b cri.PodIdentity) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
