// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"github.com/seed81659283/nodeagent/cgroups"
)

// KillCause is why a process was killed.
type KillCause uint8

// The causes of a [Kill].
const (
	CauseKill     KillCause = iota // [Tree.Kill] or [Tree.Remove]
	CauseOOM                       // the OOM killer chose it
	CauseOOMGroup                  // the OOM killer chose another one of its group, see [cgroups.Resources.OOMGroup]
)

// String returns "kill", "oom" or "oom group".
func (c KillCause) String() string {
	return [...]string{"kill", "oom", "oom group"}[min(c, CauseOOMGroup)]
}

// KilledProc is the end of a process that did not want to.
type KilledProc struct {
	Proc  // as it was
	Cause KillCause
	// FullCgroup is the cgroup whose memory.max left no room; the root where the machine has no more memory. Only of the
	// OOM killer.
	FullCgroup cgroups.Path
}

// kill ends a process and takes note of it.
func (t *Tree) kill(pr *proc, k KilledProc) {
	k.Proc = pr.public()
	t.kills = append(t.kills, k)
	t.end(pr)
}

func (t *Tree) killAll(n *node) {
	for _, pr := range n.below() {
		t.kill(pr, KilledProc{Cause: CauseKill})
	}
}

// outOfMemory kills one process of a cgroup that is full, or a group of them. It returns false where there is none
// that can be killed.
func (t *Tree) outOfMemory(full *node) bool {
	t.count(full, func(e *cgroups.MemoryEvents) { e.OOM++ })
	victim := t.victim(full)
	if victim == nil {
		return false
	}
	group := oomGroup(victim.node, full)
	t.oomKill(victim, full, CauseOOM)
	if group == nil {
		return true
	}
	t.count(group, func(e *cgroups.MemoryEvents) { e.OOMGroupKill++ })
	for _, pr := range group.below() {
		if pr.adj != minAdj {
			t.oomKill(pr, full, CauseOOMGroup)
		}
	}
	return true
}

func (t *Tree) oomKill(pr *proc, full *node, cause KillCause) {
	t.count(pr.node, func(e *cgroups.MemoryEvents) { e.OOMKill++ })
	t.kill(pr, KilledProc{Cause: cause, FullCgroup: full.path()})
}

// Bounds of oom_score_adj. What has the least is never killed.
const (
	minAdj = -1000
	maxAdj = 1000
)

// victim chooses as oom_badness of Linux does (mm/oom_kill.c): the most pages, where each point of oom_score_adj
// counts as a thousandth of the limit. Of equals it is the youngest.
func (t *Tree) victim(full *node) *proc {
	perPoint := full.limits.memoryMax / t.opts.PageSize / 1000
	var chosen *proc
	var most int64
	for n := range full.all() {
		for _, pr := range n.procs {
			points := pr.holds()/t.opts.PageSize + int64(pr.adj)*perPoint
			better := chosen == nil || points > most || points == most && pr.pid > chosen.pid
			if pr.adj != minAdj && better {
				chosen, most = pr, points
			}
		}
	}
	return chosen
}

// oomGroup returns the highest cgroup from n up to full that dies as a whole, or nil.
func oomGroup(n, full *node) (group *node) {
	for c := range n.upwards() {
		if c.limits.oomGroup {
			group = c
		}
		if c == full {
			break
		}
	}
	return group
}
