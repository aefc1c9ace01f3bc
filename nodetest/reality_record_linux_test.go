// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodetest"
	"github.com/seed81659283/nodeagent/nodetest/internal/worker"
)

// record is a scenario that a real node has run.
type record struct {
	Attempt                           uint64 // of the scenario
	Idle, Worker, Capacity, Available int64  // bytes
	Began, Interval                   time.Duration
	Begins                            map[string][]time.Duration
	Log                               nodetest.Log
	Machine                           worker.Watch
	Start                             time.Time
	SampleTimes                       []time.Duration
	SampleAvailable                   []int64
	SampleCPU, SampleThrottled        []map[string]float64
	SampleMemory                      []map[string]int64
}

// recordPath returns the file of a scenario in a directory.
func recordPath(dir string, seed uint64) string {
	return filepath.Join(dir, "scenario-"+strconv.FormatUint(seed, 10)+".json")
}

// writeRecord writes the outcome of a scenario on a real node.
func writeRecord(t *testing.T, dir string, s *scenario, cost overhead, o *outcome) {
	t.Helper()
	r := record{
		Attempt: s.attempt, Idle: o.idle, Worker: cost.worker, Capacity: o.capacity, Available: o.available, Began: o.began, Interval: o.interval,
		Begins: o.begins, Log: o.log, Machine: o.machine, Start: o.start,
	}
	for _, sample := range o.samples {
		cpu, throttled, memory := map[string]float64{}, map[string]float64{}, map[string]int64{}
		for name, p := range sample.pods {
			cpu[name], throttled[name], memory[name] = p.cpu, p.throttled, p.memory
		}
		r.SampleTimes, r.SampleAvailable = append(r.SampleTimes, sample.at), append(r.SampleAvailable, sample.available)
		r.SampleCPU, r.SampleThrottled, r.SampleMemory = append(r.SampleCPU, cpu), append(r.SampleThrottled, throttled), append(r.SampleMemory, memory)
	}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(recordPath(dir, s.seed), text, 0o600))
}

// readRecord returns the outcome of a scenario on a real node. ok is false if there is none.
func readRecord(t *testing.T, dir string, seed uint64) (s scenario, cost overhead, o *outcome, ok bool) {
	t.Helper()
	text, err := os.ReadFile(recordPath(dir, seed))
	if errors.Is(err, fs.ErrNotExist) {
		return s, cost, nil, false
	}
	require.NoError(t, err)
	var r record
	require.NoError(t, json.Unmarshal(text, &r))
	s = drawScenario(seed, r.Attempt)
	o = &outcome{
		config: s.config(r.Idle), idle: r.Idle, capacity: r.Capacity, available: r.Available, began: r.Began, interval: r.Interval, begins: r.Begins,
		log: r.Log, machine: r.Machine, start: r.Start,
	}
	for i, at := range r.SampleTimes {
		sample := sample{at: at, available: r.SampleAvailable[i], pods: map[string]podSample{}}
		for name, cpu := range r.SampleCPU[i] {
			sample.pods[name] = podSample{cpu: cpu, throttled: r.SampleThrottled[i][name], memory: r.SampleMemory[i][name]}
		}
		o.samples = append(o.samples, sample)
	}
	return s, overhead{worker: r.Worker}, o, true
}

// The simulated nodes agree with the records of real ones in the directory NODETEST_REPLAY. It needs no kernel of its own.
func TestNodeAgreesWithRecords(t *testing.T) {
	dir := os.Getenv("NODETEST_REPLAY")
	if dir == "" {
		t.Skip("needs the directory NODETEST_REPLAY, which make node-model writes")
	}
	var total agreement
	for seed := range uint64(2 * scenarios) {
		if s, cost, measured, ok := readRecord(t, dir, seed); ok {
			total.compareModel(t, &s, cost, measured)
		}
	}
	total.check(t)
}
