// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package evictiontest

import (
	"context"
	"testing"
	"time"

	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/internal/suite"
)

// Sentences of the documentation of package eviction that the suite checks.
const (
	ruleSignals    = "Signals: Signals measures the signals of the node, and returns layout and readings without candidates."
	ruleAvailable  = "Available: negative if usage exceeds the capacity"
	ruleTime       = "Time: A reading with an unchanged Time counts as the previous reading"
	ruleReclaim    = "Reclaimable: for memory signals only"
	ruleCandidates = "Candidates: Candidates returns all running pods with their usage."
	ruleMeasured   = "Measured: the fields below were measured"
	ruleReturns    = "Observer: Methods must return soon after their context has ended."
)

// TestObserver checks an observer against the documentation of [eviction.Observer], [eviction.Reading] and
// [eviction.Candidate]. The observed node must run at least one pod.
func TestObserver(t *testing.T, newObserver func(t *testing.T) eviction.Observer) {
	t.Helper()
	for name, check := range map[string]func(c *suite.Check, o eviction.Observer){"Signals": checkSignals, "Candidates": checkCandidates, "Ended": checkEndedContext} {
		t.Run(name, func(t *testing.T) { check(&suite.Check{T: t}, newObserver(t)) })
	}
}

func checkSignals(c *suite.Check, observer eviction.Observer) {
	before := map[eviction.Signal]time.Time{}
	for range 3 {
		o, err := observer.Signals(c.Context())
		c.Succeed(err, ruleSignals, "Signals")
		c.Hold(len(o.Readings) > 0, ruleSignals, "there are no readings")
		c.Hold(!o.Measured && o.Candidates == nil, ruleSignals, "pods were measured")
		for _, r := range o.Readings {
			c.Hold(r.Signal.Resource() != "", ruleSignals, "unknown signal %q", r.Signal)
			c.Hold(r.Capacity > 0 && r.Available <= r.Capacity, ruleAvailable, "%s: available %d, capacity %d", r.Signal, r.Available, r.Capacity)
			c.Hold(r.Reclaimable == 0 || r.Signal.Resource() == eviction.Memory, ruleReclaim, "%s: reclaimable %d", r.Signal, r.Reclaimable)
			c.Hold(r.Time.IsZero() || !r.Time.Before(before[r.Signal]), ruleTime, "%s: measured at %s, and before at %s", r.Signal, r.Time, before[r.Signal])
			before[r.Signal] = r.Time
		}
	}
}

func checkCandidates(c *suite.Check, observer eviction.Observer) {
	list, err := observer.Candidates(c.Context())
	c.Succeed(err, ruleCandidates, "Candidates")
	c.Hold(len(list) > 0, ruleCandidates, "there are no pods")
	seen := map[string]bool{}
	for _, p := range list {
		c.Hold(p.UID != "" && !seen[p.UID], ruleCandidates, "UID %q is empty or there twice", p.UID)
		seen[p.UID] = true
		numbers := map[string]int64{
			"Memory": p.Memory, "Swap": p.Swap, "MemoryRequest": p.MemoryRequest, "Tasks": p.Tasks, "StorageRequest": p.StorageRequest,
			"Rootfs": min(p.Rootfs.Bytes, p.Rootfs.Inodes), "Logs": min(p.Logs.Bytes, p.Logs.Inodes), "Volumes": min(p.Volumes.Bytes, p.Volumes.Inodes),
		}
		for name, n := range numbers {
			c.Hold(n >= 0, ruleCandidates, "pod %s: %s is %d", p.UID, name, n)
		}
		c.Hold(p.Measured || p.Memory == 0 && p.Tasks == 0, ruleMeasured, "pod %s was not measured and has numbers", p.UID)
	}
}

func checkEndedContext(c *suite.Check, observer eviction.Observer) {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	for name, call := range map[string]func(){
		"Signals":    func() { _, _ = observer.Signals(ctx) },
		"Candidates": func() { _, _ = observer.Candidates(ctx) },
	} {
		returned := make(chan struct{})
		go func() { defer close(returned); call() }()
		select {
		case <-returned:
		case <-time.After(10 * time.Second):
			c.Hold(false, ruleReturns, "%s has not returned ten seconds after its context ended", name)
		}
	}
}
