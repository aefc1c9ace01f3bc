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

// Inject makes the runtime calls that match f go wrong until remove is called. A call that hangs never returns; the pod waits until the agent
// is restarted.
func (l *Loop) Inject(f Fault) (remove func()) { return l.faults.addFault(f) }

// CutNetwork cuts the node off from its API server, or connects it again. The agent does not learn of added and deleted pods while it is cut off.
// It always returns nil.
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

// FillDisk writes files of this size to a disk of the machine, see [Node.FillDisk].
func (l *Loop) FillDisk(disk machine.DiskName, bytes int64) { fillDisk(l.kernel, disk, bytes) }

// RestartAgent kills the agent and starts a new one after the time down. The containers run on. It always returns nil.
func (l *Loop) RestartAgent(down time.Duration) error {
	l.stopAgent()
	l.Advance(down)
	l.startAgent()
	l.Advance(agentDelay + agentPause)
	return nil
}

// Reboot kills the agent and all containers at once, and starts the machine again after the time down. It always returns nil.
func (l *Loop) Reboot(down time.Duration) error {
	l.stopAgent()
	for _, p := range l.pods {
		for _, c := range p.containers {
			p.exit(c, critest.Exit{Code: 255})
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

// stopAgent stops the agent at once. Runtime calls in progress have no further effect.
func (l *Loop) stopAgent() {
	l.ready = false
	l.agentStarts++
	l.evictor.passID++
	for _, p := range l.pods {
		p.resetWorker()
	}
}

// startAgent starts an agent: it evaluates the signals after its start-up time, and syncs the pods after it has listed the containers.
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

// listAll syncs all pods with the containers that a started agent has listed.
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

// compareIdentities orders pods by name.
func compareIdentities(a, b cri.PodIdentity) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
