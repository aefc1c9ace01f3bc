// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package eviction_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/eviction"
)

// A state is calm while no threshold is met and no condition is true: at the start, and again once the condition has expired.
func TestStateIsCalmWithoutThresholdsAndConditions(t *testing.T) {
	limit := eviction.Threshold{Signal: eviction.MemoryAvailable, Value: eviction.Amount{Absolute: 100}}
	policy, err := eviction.NewPolicy(eviction.Rules{Thresholds: []eviction.Threshold{limit}, TransitionPeriod: time.Minute, NoLocalStorage: true})
	require.NoError(t, err)
	var state eviction.State
	now := time.Unix(1_000_000, 0)
	for _, step := range []struct {
		after     time.Duration
		available int64
		calm      bool
	}{{0, 500, true}, {10 * time.Second, 50, false}, {10 * time.Second, 500, false}, {time.Minute, 500, true}} {
		now = now.Add(step.after)
		state = policy.Decide(state, eviction.Observation{Measured: true, Readings: []eviction.Reading{
			{Signal: eviction.MemoryAvailable, Capacity: 1000, Available: step.available},
		}}, now).State
		require.Equal(t, step.calm, state.IsCalm(policy, now), "%+v", step)
	}
}
