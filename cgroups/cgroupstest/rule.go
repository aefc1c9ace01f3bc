// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

// Sentences of the documentation of package cgroups that the suite checks, after the name of the declaration.
// TestRulesAreDocumented finds each of them there.
const (
	ruleCreate     = "CgroupWriter: Apply creates the cgroup p and its missing parents, and sets the fields that are set in r."
	ruleAgain      = "CgroupWriter: It writes only files that differ."
	ruleEnforce    = "CgroupWriter: A limit that the host cannot enforce is an error"
	ruleRemove     = "CgroupWriter: Remove kills the processes of p and its descendants, and removes these cgroups."
	ruleRemoveGone = "CgroupWriter: An absent cgroup is success. The root cannot be removed."
	ruleConcurrent = "CgroupWriter: Its methods may be called by several goroutines, and several writers may share a cgroup tree."
	ruleContext    = "CgroupWriter: If ctx has ended, a method does nothing and returns an error that wraps the cause"

	ruleLeave     = "Resources: A zero or nil field leaves the setting unchanged, so a zero Resources only creates the cgroup."
	ruleUnlimited = "Unlimited: as the value of a limit means no limit"
	rulePeriod    = "Resources.CPUPeriod: zero with a quota means 100000"
	ruleOnlyV2    = "Resources.MemoryLow: memory.low; ignored on v1"
	ruleUnified   = "Resources.Unified: Unified maps names of cgroup v2 files to their content, written after all other fields; ignored on v1."

	ruleChildren = "Lister: Children returns the sorted names of the cgroups directly below p. Each is a component of a [Path]."
	ruleProcs    = "Lister: Procs returns the sorted PIDs of the processes in p and its descendants."
	ruleListGone = "Lister: If p does not exist, the error wraps [io/fs.ErrNotExist]."

	ruleReadGone  = "Reader: If the cgroup does not exist, the error wraps [io/fs.ErrNotExist]."
	ruleLimits    = "Reader: Limits returns the limits in force. A field is unset if its controller is not available."
	ruleShares    = "Reader: On cgroup v2 CPUShares is the value converted to cpu.weight and back, see [RoundTripShares]."
	ruleStats     = "Reader: Stats returns the usage of p and its descendants."
	ruleBelow     = "Stats: is the usage of a cgroup and its descendants"
	ruleNewCounts = "Stats: Counters start at zero when the cgroup is created and never decrease."
	rulePopulated = "CgroupEvents: the cgroup or a descendant has a process"
	ruleFrozen    = "CgroupEvents: all its processes are stopped"
	ruleOOMKill   = "MemoryEvents: processes killed by the OOM killer"

	ruleKill       = "Killer: it kills the processes of a cgroup without removing it. Kill returns when no process runs any more. An absent cgroup is success."
	ruleFreeze     = "Freezer: it stops and resumes the processes of a cgroup. Its methods return when the kernel reports the new state."
	ruleError      = "Error: is the error of an operation on a cgroup: the operation, the cgroup, the file and the cause."
	ruleFrozenKill = "Freezer: A frozen cgroup can be killed and removed."
	ruleThaw       = "Freezer: It does nothing if p is not frozen."
	ruleSample     = "Sampler: Sample returns the selected parts of the usage of a cgroup; all other parts are zero. The cgroup is p, or if child is not empty, the directory child directly below p, see ChildDirs."
	ruleSampleGone = "Sampler: If the cgroup does not exist, the error wraps [io/fs.ErrNotExist]."
	ruleChildDirs  = "Sampler: ChildDirs returns the sorted names of the directories directly below p."
	ruleMaxRead    = "MemoryStats.Max: Nil: not requested, or the cgroup has no such file."
	ruleReclaim    = "Reclaimer: freed is the amount freed at least, which may be less than bytes."
	ruleReclaimV1  = "Reclaimer: On v1 and on kernels without the file the error wraps [errors.ErrUnsupported]."
	ruleWatch      = "Watcher: Watch calls fn each time one of the triggers fires, never concurrently"
	ruleWatchEnds  = "Watcher: until ctx ends; then it returns nil."
	ruleRange      = "Resources: returns an error that names the first field whose value no kernel accepts."
	ruleValidate   = "Path: Callers check untrusted input with [Path.Validate], so that no \"..\" leads out of the tree."
)
