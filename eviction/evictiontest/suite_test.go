// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package evictiontest_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/eviction/evictiontest"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
)

const mutantVariable = "EVICTIONTEST_MUTANT"

// mutant is an observer that violates a rule: it changes the results of a node.
type mutant struct {
	eviction.Observer
	test, broken string
	observation  func(*eviction.Observation) error
	candidates   func([]eviction.Candidate) ([]eviction.Candidate, error)
}

func (m mutant) Signals(ctx context.Context) (eviction.Observation, error) {
	o, err := m.Observer.Signals(ctx)
	if m.observation != nil {
		err = m.observation(&o)
	}
	return o, err
}

func (m mutant) Candidates(ctx context.Context) ([]eviction.Candidate, error) {
	list, err := m.Observer.Candidates(ctx)
	if m.candidates != nil {
		return m.candidates(list)
	}
	return list, err
}

// change returns a mutant that changes the first reading.
func change(broken string, f func(*eviction.Reading)) mutant {
	return mutant{test: "Signals", broken: broken, observation: func(o *eviction.Observation) error {
		if len(o.Readings) > 0 {
			f(&o.Readings[0])
		}
		return nil
	}}
}

// pods returns a mutant that changes the candidates.
func pods(broken string, f func([]eviction.Candidate) ([]eviction.Candidate, error)) mutant {
	return mutant{test: "Candidates", broken: broken, candidates: f}
}

var mutants = map[string]mutant{
	"fails":            {test: "Signals", broken: "Signals: ", observation: func(*eviction.Observation) error { return errors.New("no") }},
	"no readings":      {test: "Signals", broken: "Signals: ", observation: func(o *eviction.Observation) error { o.Readings = nil; return nil }},
	"unknown signal":   change("Signals: ", func(r *eviction.Reading) { r.Signal = "cpu.available" }),
	"too much":         change("Available: ", func(r *eviction.Reading) { r.Available = r.Capacity + 1 }),
	"reclaimable disk": change("Reclaimable: ", func(r *eviction.Reading) { r.Signal, r.Reclaimable = eviction.NodeFSAvailable, 1 }),
	"time runs back":   change("Time: ", func(r *eviction.Reading) { r.Time = time.Unix(0, 0).Add(-time.Since(time.Unix(0, 0))) }),
	"no pods":          pods("Candidates: ", func([]eviction.Candidate) ([]eviction.Candidate, error) { return nil, nil }),
	"pod listed twice": pods("Candidates: ", func(l []eviction.Candidate) ([]eviction.Candidate, error) { return append(l, l...), nil }),
	"negative inodes":  pods("Candidates: ", func(l []eviction.Candidate) ([]eviction.Candidate, error) { l[0].Logs.Inodes = -1; return l, nil }),
	"not measured":     pods("Measured: ", func(l []eviction.Candidate) ([]eviction.Candidate, error) { l[0].Measured = false; return l, nil }),
	"hangs": {test: "Ended", broken: "Observer: ", candidates: func(l []eviction.Candidate) ([]eviction.Candidate, error) {
		time.Sleep(time.Minute)
		return l, nil
	}},
}

func node(*testing.T) eviction.Observer {
	n := evictiontest.NewNode(evictiontest.Options{Memory: 1 << 30, NodeFS: 1 << 30, PIDs: 1000, Cache: 1 << 20})
	n.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "a", Memory: 1 << 20, Tasks: 3}})
	return n
}

func TestNodePasses(t *testing.T) { evictiontest.TestObserver(t, node) }

// TestMutant runs the suite on one mutant, in its own process.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("started by TestSuiteFindsFaults")
	}
	evictiontest.TestObserver(t, func(t *testing.T) eviction.Observer {
		m := mutants[name]
		m.Observer = node(t)
		return m
	})
}

func TestSuiteFindsFaults(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) { suitetest.FindsFault(t, mutantVariable, name, m.test, m.broken) })
	}
}

func TestRulesAreDocumented(t *testing.T) { suitetest.Documented(t, "suite.go", "../*.go", 7) }

// A node without free memory kills the pod with the most memory. If there are caches, it reclaims them first.
func TestNodeKillsLargestPodWithoutMemory(t *testing.T) {
	n := evictiontest.NewNode(evictiontest.Options{Memory: 100, Cache: 50})
	n.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "big", Memory: 60}, MemoryPerSecond: 1 << 40})
	n.StartPod(evictiontest.Pod{Candidate: eviction.Candidate{UID: "small", Memory: 10}})
	time.Sleep(time.Millisecond)
	if got := n.RunningPods(); len(got) != 1 || got[0] != "small" {
		t.Errorf("running: %v", got)
	}
	if got := n.EventUIDs("oom"); len(got) != 1 || got[0] != "big" {
		t.Errorf("killed: %v", got)
	}
	if err := n.Kill(t.Context(), "big"); err == nil {
		t.Error("Kill of a terminated pod must fail")
	}
}
