// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"github.com/seed81659283/nodeagent/cgroups"
)

// KillCause is the cause of a [KilledProc].
type KillCause uint8

// The causes of a kill.
const (
	CauseKill     KillCause = iota // by [Tree.Kill] or [Tree.Remove]
	CauseOOM                       // selected by the OOM killer
	CauseOOMGroup                  // killed with its group, see [cgroups.Resources.OOMGroup]
)

// String returns "kill", "oom" or "oom group".
func (c KillCause) String() string {
	return [...]string{"kill", "oom", "oom group"}[min(c, CauseOOMGroup)]
}

// KilledProc describes a killed process.
type KilledProc struct {
	Proc  // state before the kill
	Cause KillCause
	// FullCgroup is the cgroup whose memory.max was reached; the root if the machine is full. Set for OOM kills only.
	FullCgroup cgroups.Path
}

// killProc removes process from the tree, and adds k to the list for Options.Killed.
func (t *Tree) killProc(process *proc, k KilledProc) {
	k.Proc = process.toProc()
	t.kills = append(t.kills, k)
	t.removeProc(process)
}

func (t *Tree) killAll(n *node) {
	for _, pr := range n.listProcs() {
		t.killProc(pr, KilledProc{Cause: CauseKill})
	}
}

// runOOMKiller kills a process or OOM group below the cgroup that has no free memory. It returns false if it can kill none.
func (t *Tree) runOOMKiller(full *node) (killed bool) {
	t.countEvent(full, func(e *cgroups.MemoryEvents) { e.OOM++ })
	victim := t.selectVictim(full)
	if victim == nil {
		return false
	}
	group := findOOMGroup(victim.node, full)
	t.oomKill(victim, full, CauseOOM)
	if group == nil {
		return true
	}
	t.countEvent(group, func(e *cgroups.MemoryEvents) { e.OOMGroupKill++ })
	for _, pr := range group.listProcs() {
		if pr.adj != minAdj {
			t.oomKill(pr, full, CauseOOMGroup)
		}
	}
	return true
}

func (t *Tree) oomKill(pr *proc, full *node, cause KillCause) {
	t.countEvent(pr.node, func(e *cgroups.MemoryEvents) { e.OOMKill++ })
	t.killProc(pr, KilledProc{Cause: cause, FullCgroup: full.path()})
}

// Range of oom_score_adj. Processes with minAdj are never killed.
const (
	minAdj = -1000
	maxAdj = 1000
)

// selectVictim returns the process that the OOM killer selects, or nil. Source: oom_badness in mm/oom_kill.c of Linux.
func (t *Tree) selectVictim(full *node) *proc {
	perPoint := full.limits.memoryMax / t.opts.PageSize / 1000
	var chosen *proc
	var most int64
	for n := range full.selfAndDescendants() {
		for _, pr := range n.procs {
			// one per page, and for each unit of oom_score_adj a thousandth of the limit
			points := pr.totalMemory()/t.opts.PageSize + int64(pr.adj)*perPoint
			better := chosen == nil || points > most || points == most && pr.pid > chosen.pid
			if pr.adj != minAdj && better {
				chosen, most = pr, points
			}
		}
	}
	return chosen
}

// findOOMGroup returns the highest cgroup with memory.oom.group between the cgroup and its ancestor full, or nil.
func findOOMGroup(cgroup, full *node) (group *node) {
	for c := range cgroup.selfAndAncestors() {
		if c.limits.oomGroup {
			group = c
		}
		if c == full {
			break
		}
	}
	return group
}
