// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"cmp"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Fixture describes the driver to test and its host.
type Fixture struct {
	// New returns a driver for an empty tree. Each case calls it once. t.Cleanup must close it and remove the cgroups of failed
	// cases. Optional interfaces of the driver, for example [cgroups.Killer], are tested too.
	New func(t *testing.T) Driver
	// Start runs a process in cgroup p of d until it is killed or the test ends. When it returns, the process has memory bytes,
	// or was killed before. Nil skips the cases that need processes.
	Start func(t *testing.T, d Driver, p cgroups.Path, memory int64) (pid int)

	Mode          Mode                  // cgroup version of the host
	WeightFormula cgroups.WeightFormula // formula of the driver
	Controllers   []string              // controllers of the host, out of "cpu", "cpuset", "memory", "pids"
	HugepageSizes []string              // page sizes that the host can limit
	Swap          bool                  // the host can limit swap

	Timeout time.Duration // limit for waiting on the host; zero: 30 s
}

// TestDriver checks that a driver behaves as package cgroups documents. A failure quotes the violated sentence. Unsupported
// cases are skipped. On a real kernel it takes a few seconds, and creates up to a hundred cgroups.
func TestDriver(t *testing.T, fixture Fixture) {
	fixture.Timeout = cmp.Or(fixture.Timeout, 30*time.Second)
	for _, c := range []struct {
		name string
		test func(t *trial)
	}{
		{"Apply creates a cgroup and its parents", checkApplyCreatesParents},
		{"Apply can be repeated", checkApplyRepeats},
		{"Apply keeps unset fields", checkApplyKeepsUnsetFields},
		{"Apply of zero Resources only creates", checkApplyEmpty},
		{"Apply of Unlimited removes a limit", checkApplyUnlimited},
		{"Apply rejects invalid limits", checkApplyInvalid},
		{"Apply writes Unified files", checkApplyUnified},
		{"v1 ignores v2 fields", checkV1IgnoresV2Fields},

		{"CPU shares are read back rounded", checkCPUShares},
		{"CPU quota is read back", checkCPUQuota},
		{"cpuset is read back", checkCpuset},
		{"memory limits are read back in pages", checkMemoryLimits},
		{"swap limit is read back", checkSwapLimit},
		{"PID limit is read back", checkPidsLimit},
		{"hugepage limits are read back", checkHugetlbLimits},

		{"Remove of an absent cgroup succeeds", checkRemoveAbsent},
		{"Remove removes descendants", checkRemoveDescendants},
		{"Remove keeps siblings", checkRemoveKeepsSiblings},
		{"Remove kills processes of descendants", checkRemoveKills},
		{"Remove kills frozen processes", checkRemoveFrozen},
		{"Remove rejects the root", checkRemoveRoot},
		{"a removed cgroup can be recreated", checkRecreate},

		{"children are sorted", checkChildren},
		{"Procs are sorted and include descendants", checkProcs},
		{"reads of an absent cgroup fail", checkReadAbsent},

		{"Stats report processes", checkPopulated},
		{"Stats of a parent include its children", checkMemoryUsage},
		{"memory above the limit causes an OOM kill", checkOOMKill},

		{"Kill kills processes and keeps the cgroup", checkKill},
		{"Kill of an absent cgroup succeeds", checkKillAbsent},
		{"Freeze stops descendants until Thaw", checkFreezeThaw},
		{"frozen processes can be killed", checkKillFrozen},

		{"Sample returns the selected parts", checkSampleParts},
		{"Sample reads a child directory", checkSampleChild},
		{"Sample of an absent cgroup fails", checkSampleAbsent},
		{"Reclaim frees at most the usage", checkReclaim},
		{"Watch reports memory events", checkWatchEvents},
		{"Watch ends with its context or cgroup", checkWatchEnds},

		{"invalid paths are rejected", checkInvalidPaths},
		{"an ended context stops every call", checkContextEnded},
		{"concurrent Apply of one cgroup succeeds", checkConcurrentApply},
		{"concurrent Apply of siblings creates the parent once", checkConcurrentSiblings},
		{"Apply and Remove may race", checkApplyRemoveRace},
		{"concurrent Remove succeeds", checkConcurrentRemove},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(newTrial(t, fixture)) })
	}
}
