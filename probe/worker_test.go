// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/probe"
)

// worker is a model of doProbe of the kubelet's pkg/kubelet/prober/worker.go, without times. It checks its container, may
// probe, and stores the result.
type worker struct {
	kind             probe.Kind
	success, failure int

	id      string
	results map[string]probe.Outcome
	last    probe.Outcome
	run     int
	onHold  bool
}

// doProbe reports whether the worker probed, and so used answer as the result.
func (w *worker) doProbe(t probe.Target, waits bool, answer probe.Outcome, err bool) (asked bool) {
	if t.ContainerID == "" {
		return false
	}
	if t.ContainerID != w.id {
		w.id, w.onHold = t.ContainerID, false
		w.results[w.id] = map[probe.Kind]probe.Outcome{
			probe.Readiness: probe.Failure, probe.Liveness: probe.Success, probe.Startup: probe.Unknown,
		}[w.kind]
	}
	switch {
	case w.onHold:
		return false
	case !t.Running:
		w.results[w.id] = probe.Failure
		return false
	case t.Terminating && w.kind != probe.Readiness:
		w.results[w.id] = probe.Success
		return false
	case waits, t.Started && w.kind == probe.Startup, !t.Started && w.kind != probe.Startup:
		return false
	case err:
		return true
	}
	if w.last == answer {
		w.run++
	} else {
		w.last, w.run = answer, 1
	}
	if answer == probe.Failure && w.run < w.failure || answer == probe.Success && w.run < w.success {
		return true
	}
	w.results[w.id] = answer
	if w.kind == probe.Liveness && answer == probe.Failure || w.kind == probe.Startup {
		w.onHold, w.run = true, 0
	}
	return true
}

// TestStateFollowsTheKubelet runs 5,000 random sequences of events.
func TestStateFollowsTheKubelet(t *testing.T) {
	rnd := rand.NewChaCha8([32]byte{})
	for range 5000 {
		events := make([]byte, 3+60)
		_, _ = rnd.Read(events)
		compareWithKubelet(t, events[0], events[1], events[2], events[3:])
	}
}

// FuzzStateFollowsTheKubelet searches for a sequence of events in which State and the kubelet's worker differ.
func FuzzStateFollowsTheKubelet(f *testing.F) {
	f.Add(uint8(1), uint8(1), uint8(3), []byte("\x00\x81\x07\x07\x08\x08\x08\x07"))
	f.Add(uint8(2), uint8(1), uint8(2), []byte("\x00\x11\x07\x08\x02\x08\x01\x08\x11\x08\x08\x03"))
	f.Fuzz(compareWithKubelet)
}

// compareWithKubelet applies random events to a State and to the kubelet's worker. Both must always have equal values, and a
// probe that must not run is not due.
func compareWithKubelet(t *testing.T, kind, success, failure uint8, events []byte) {
	now := epoch
	target := probe.Target{Key: probe.Key{PodUID: "u", Container: "c", Kind: probe.Kind(kind % 3)}}
	target.Spec = probe.Spec{
		InitialDelay: time.Duration(kind>>4) * time.Second, Period: 3 * time.Second,
		SuccessThreshold: 1 + int(success%4), FailureThreshold: 1 + int(failure%4),
	}
	w := &worker{
		kind: target.Kind, success: target.Spec.SuccessThreshold, failure: target.Spec.FailureThreshold,
		results: map[string]probe.Outcome{}, last: probe.Success,
	}
	state := probe.NewState(now)
	ids := "abcdefghijklmnop"
	for _, step := range events {
		now = now.Add(time.Duration(step>>5) * 500 * time.Millisecond)
		answer, err := probe.Failure, false
		switch step & 15 {
		case 0: // The next container is running when it is first observed. The kubelet would record a failure for one that is not.
			target.ContainerID, ids = ids[:1], ids[1:]+ids[:1]
			target.Running, target.Started, target.StartedAt = true, target.Kind != probe.Startup, now
		case 1:
			target.Running = false
		case 2:
			target.Terminating = true
		case 3:
			target.Started = !target.Started
		case 4:
			state = state.Trigger(now)
		case 5, 6, 7:
			answer = probe.Success
		case 8:
			err = true
		}
		waits := now.Sub(target.StartedAt) < target.Spec.InitialDelay
		state = state.UpdateTarget(target, probe.PreviousRun{}, now)
		w.doProbe(target, true, 0, false)
		if due := state.NextProbe(); !due.IsZero() && !due.After(now) {
			require.True(t, w.doProbe(target, waits, answer, err), "a probe is due although the kubelet's worker would not probe")
			state = state.StartProbe(now)
			require.True(t, state.NextProbe().After(now) && state.NextProbe().Sub(now) <= 3*time.Second)
			if !err {
				state = state.AddResult(answer)
			}
		}
		v, ok := state.Value()
		require.Equal(t, w.id != "", ok)
		require.Equal(t, w.id, v.ContainerID)
		require.Equal(t, w.results[w.id].String(), v.Outcome.String())
	}
}
