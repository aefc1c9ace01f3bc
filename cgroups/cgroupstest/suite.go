// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cgroupstest

import (
	"cmp"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/cgroups"
)

// Fixture is a driver under test and the host that it runs on.
type Fixture struct {
	// New returns a driver for a tree in which there is nothing yet. Each case calls it once; what it opens is
	// closed by t.Cleanup, which also removes what a case that failed has left. A driver that is a [cgroups.Killer]
	// or a [cgroups.Freezer] is checked as such.
	New func(t *testing.T) Driver
	// Start runs a process in a cgroup of d, that runs until it is killed or the test ends. It holds so many bytes
	// of memory, or as many as it was given before it was killed, when Start returns. Nil leaves out what takes a
	// process.
	Start func(t *testing.T, d Driver, p cgroups.Path, memory int64) (pid int)

	Mode          Mode                  // of the host
	WeightFormula cgroups.WeightFormula // of the driver
	Controllers   []string              // that the host has, out of "cpu", "cpuset", "memory", "pids"
	HugepageSizes []string              // that the host has and can limit
	Swap          bool                  // the host can limit swap

	Timeout time.Duration // how long to wait for the host; zero means 30 s
}

// TestDriver checks a driver against the documentation of package cgroups. It makes up to a hundred cgroups and takes a
// few seconds on a real kernel. A failure names the sentence that is broken. What the driver or the host has not is
// skipped.
func TestDriver(t *testing.T, f Fixture) {
	f.Timeout = cmp.Or(f.Timeout, 30*time.Second)
	for _, c := range []struct {
		name string
		test func(t *trial)
	}{
		{"apply makes a cgroup and its parents", applyMakes},
		{"apply may be repeated", applyRepeats},
		{"apply leaves what it is not told", applyLeaves},
		{"apply with nothing to set only makes", applyNothing},
		{"an unlimited limit is taken away", applyUnlimited},
		{"a limit that the host cannot enforce is an error", applyImpossible},
		{"a file of v2 can be written by its name", applyUnified},
		{"v1 ignores what only v2 has", applyIgnores},

		{"cpu shares read back in the unit of the kernel", limitShares},
		{"a cpu quota reads back", limitQuota},
		{"a cpuset reads back", limitCpuset},
		{"memory limits read back in whole pages", limitMemory},
		{"a swap limit reads back", limitSwap},
		{"a pids limit reads back", limitPids},
		{"huge page limits read back", limitHugetlb},

		{"remove of what is absent is success", removeAbsent},
		{"remove takes what is below with it", removeTree},
		{"remove leaves neighbours alone", removeNeighbours},
		{"remove kills what runs below", removeKills},
		{"remove kills what is frozen", removeFrozen},
		{"the root is not removed", removeRoot},
		{"what was removed can be made anew", removeAnew},

		{"children are sorted", listChildren},
		{"processes are sorted and those below included", listProcs},
		{"what is absent cannot be listed or read", listAbsent},

		{"stats report processes", statsPopulated},
		{"stats of a parent hold those of its children", statsMemory},
		{"memory over the limit is an OOM kill", statsOOM},

		{"kill ends what runs and keeps the cgroup", killKeeps},
		{"kill of what is absent is success", killAbsent},
		{"freeze stops all below until thaw", freezeThaws},
		{"what is frozen can be killed", freezeKills},

		{"a sample has what was asked for", sampleParts},
		{"a leaf is sampled", sampleLeaf},
		{"what is absent cannot be sampled", sampleAbsent},
		{"reclaim takes no more than there is", reclaimBounded},
		{"watch tells of memory events", watchEvents},
		{"watch ends with its context or its cgroup", watchEnds},

		{"a path that leaves the tree is refused", pathEscapes},
		{"a context that has ended stops every call", contextEnded},
		{"writers of one cgroup do not fail each other", writersOfOne},
		{"writers of siblings share a parent that is new", writersOfSiblings},
		{"apply and remove may race", writersRace},
		{"cgroups are removed from all sides at once", removersRace},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(newTrial(t, f)) })
	}
}
