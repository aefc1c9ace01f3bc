// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
)

// A scenario is determinate if a simulated node evicts and kills the same pods in the same order with each change of the following sizes, and
// nothing happens within endMargin of the end. The changes exceed the differences of two runs of one scenario on a real kernel: 6 MiB of available
// memory, 1 MiB of a pod, and a few hundred milliseconds of the time at which a process begins or has its pages. They were set before the first
// run, and the result of a real node has no influence on the choice of a scenario.
const (
	changedMemory  = 16 << 20 // bytes of one pod, or of the system: two pods whose usage differs by less may not compete
	changedLimited = 4 << 20  // bytes of a pod with a memory limit: its next OOM kill would otherwise move by seconds
	changedDelay   = time.Second
	endMargin      = time.Second
)

// change is a difference to a scenario.
type change struct {
	uid    string        // pod; empty: the system
	memory int64         // bytes
	delay  time.Duration // of its start
}

// changes returns the changes that must not have an influence. The first is none.
func (s *scenario) changes() []change {
	list := []change{{}, {memory: changedMemory}, {memory: -changedMemory}}
	for _, p := range s.pods {
		uid, memory := string(p.UID), int64(changedMemory)
		if !p.Spec.Containers[0].Resources.Limits.Memory().IsZero() {
			memory = changedLimited
		}
		list = append(list, change{uid: uid, memory: memory}, change{uid: uid, memory: -memory}, change{uid: uid, delay: changedDelay})
	}
	return list
}

// nominal is a real node as the generator assumes it.
func (s *scenario) nominal() (o *outcome, cost overhead) {
	const idle = 900 << 20
	o = &outcome{config: s.config(idle), capacity: 1000 << 20, available: idle, begins: map[string][]time.Duration{}}
	for _, p := range s.pods {
		o.begins[string(p.UID)] = []time.Duration{100 * time.Millisecond}
	}
	return o, overhead{worker: 3 << 20}
}

// isWanted reports whether the outcome of the scenario is determinate, and has as many evictions and OOM kills as its seed wants.
func (s *scenario) isWanted() (bool, error) {
	var victims, kills []string
	for i, c := range s.changes() {
		log, began, err := s.simulate(c)
		if err != nil {
			return false, err
		}
		if i == 0 {
			victims, kills = log.Evicted(), log.OOMKilled()
		}
		isLate := func(e nodetest.Entry) bool { return (e.At - began - scenarioSeconds*time.Second).Abs() < endMargin }
		switch happened := slices.Concat(log.Match("", nodetest.KindEvent, "Evicted"), log.Match("", nodetest.KindOOM, "")); {
		case len(victims) < s.wantedEvictions(), len(kills) < s.wantedKills(), slices.ContainsFunc(happened, isLate),
			!slices.Equal(victims, log.Evicted()), !slices.Equal(kills, log.OOMKilled()):
			return false, nil
		}
	}
	return true, nil
}

// simulate returns the log of the scenario with a change in a Loop, and the age of the node at its start.
func (s *scenario) simulate(c change) (log nodetest.Log, began time.Duration, err error) {
	measured, cost := s.nominal()
	if c.uid == "" {
		measured.available -= c.memory
	}
	if c.delay > 0 {
		measured.begins[c.uid][0] += c.delay
	}
	options := modelOptions(s, cost, measured, c)
	return runLoop(s, &options, (scenarioSeconds*time.Second)+endMargin)
}

// findAttempt returns the number of the first scenario of a seed that is wanted.
func findAttempt(seed uint64) (uint64, error) {
	for attempt := range uint64(maxAttempts) {
		s := drawScenario(seed, attempt)
		if wanted, err := s.isWanted(); wanted || err != nil {
			return attempt, err
		}
	}
	return 0, fmt.Errorf("seed %d: none of %d scenarios is determinate", seed, maxAttempts)
}

// maxAttempts bounds the scenarios of one seed.
const maxAttempts = 5000

// The scenarios of the comparison are determinate, and have the pods that it needs. It runs without a real kernel.
func TestScenariosAreDeterminate(t *testing.T) {
	var evicted, killed, limited int
	for seed, attempt := range attempts() {
		if os.Getenv("NODETEST_GENERATE") != "" {
			var err error
			attempt, err = findAttempt(uint64(seed))
			require.NoError(t, err)
		}
		s := drawScenario(uint64(seed), attempt)
		wanted, err := s.isWanted()
		require.NoError(t, err)
		assert.True(t, wanted, "scenario %d", seed)
		log, _, err := s.simulate(change{})
		require.NoError(t, err)
		evicted, killed = evicted+len(log.Evicted()), killed+len(log.OOMKilled())
		for _, p := range s.pods {
			if !p.Spec.Containers[0].Resources.Limits.Cpu().IsZero() {
				limited++
			}
		}
		t.Logf("%d: evicted %v, OOM %v\n%s", seed, log.Evicted(), log.OOMKilled(), s.String())
	}
	t.Logf("%d evictions, %d OOM kills, %d pods with a CPU limit", evicted, killed, limited)
	assert.GreaterOrEqual(t, limited, 2*scenarios, "pods with a CPU limit")
}
