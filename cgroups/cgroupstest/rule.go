// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

// The sentences of package cgroups' documentation that the suite holds a driver to, with the name of what they
// document in front. A test of this package finds each of them there.
const (
	ruleCreate     = "CgroupWriter: Apply creates the cgroup where it is missing, with all of its parents, and sets what r sets."
	ruleAgain      = "CgroupWriter: It may be called again with the same or other resources; it writes only what differs."
	ruleEnforce    = "CgroupWriter: A limit that the host cannot enforce is an error"
	ruleRemove     = "CgroupWriter: Remove kills what runs in the cgroup and below, and removes them."
	ruleRemoveGone = "CgroupWriter: An absent cgroup is success; the root is refused."
	ruleConcurrent = "CgroupWriter: A writer may be used by several goroutines, and several writers may work on one tree."
	ruleContext    = "CgroupWriter: a context that has ended is an error wrapping its cause, and nothing is done."

	ruleLeave     = "Resources: A zero or nil field leaves the cgroup as it is, so that a zero Resources only creates."
	ruleUnlimited = "Unlimited: is the value of a limit that does not limit"
	rulePeriod    = "Resources.CPUPeriod: zero beside a quota means 100000"
	ruleOnlyV2    = "Resources.MemoryLow: cgroup v2 only, ignored on v1"
	ruleUnified   = "Resources.Unified: files of cgroup v2 and what to write to them, after all else; ignored on v1."

	ruleChildren = "Lister: Children returns the names of the cgroups directly below p, sorted, as components of a [Path]."
	ruleProcs    = "Lister: Procs returns the processes of p and of everything below it, sorted."
	ruleListGone = "Lister: An absent cgroup is an error wrapping [io/fs.ErrNotExist]."

	ruleReadGone  = "Reader: Reader reads one cgroup. An absent cgroup is an error wrapping [io/fs.ErrNotExist]."
	ruleLimits    = "Reader: Limits returns what is in force. A field whose controller is not there is unset."
	ruleShares    = "Reader: CPUShares is what remains of it after the kernel's own unit, see [RoundTripShares]."
	ruleStats     = "Reader: Stats returns what is used."
	ruleBelow     = "Stats: is what a cgroup and all below it use"
	ruleNewCounts = "Stats: Counters start at zero when the cgroup is created and only grow."
	rulePopulated = "CgroupEvents: a process runs in it or below"
	ruleFrozen    = "CgroupEvents: all of them are stopped"
	ruleOOMKill   = "MemoryEvents: processes that the OOM killer killed"

	ruleKill       = "Killer: kill what runs in a cgroup and below without removing it. It returns when nothing runs any more; an absent cgroup is success."
	ruleFreeze     = "Freezer: stop and go on with all that runs in a cgroup and below. It returns when the kernel says so."
	ruleError      = "Error: is what a cgroup operation returns: what was done to which cgroup, and why it was not."
	ruleFrozenKill = "Freezer: A frozen cgroup can be killed and removed."
	ruleThaw       = "Freezer: It does nothing to a cgroup that is not frozen."
	ruleSample     = "Sampler: Sample returns the selected parts of what a cgroup uses, and zero for all others: of p where leaf is empty, else of the cgroup of that name directly below p, see ChildDirs."
	ruleSampleGone = "Sampler: An absent cgroup is an error wrapping [io/fs.ErrNotExist]."
	ruleLeaves     = "Sampler: ChildDirs returns the names of the directories directly below p, sorted, as they are"
	ruleMaxRead    = "MemoryStats.Max: Nil: not asked, or the cgroup has no such file."
	ruleReclaim    = "Reclaimer: It returns how many it took at least, which is less than asked where there is no more."
	ruleReclaimV1  = "Reclaimer: On v1, and on kernels without the file, the error wraps [errors.ErrUnsupported]."
	ruleWatch      = "Watcher: Watch calls fn, from its own goroutine and one call at a time, whenever one of the triggers fires"
	ruleWatchEnds  = "Watcher: It returns nil when ctx has ended, and an error wrapping [io/fs.ErrNotExist] where the cgroup is absent"
	ruleRange      = "Resources: returns an error that names the first field whose value no kernel takes."
	ruleValidate   = "Path: What takes a Path from outside validates it, so that no \"..\" leaves the tree."
)
