// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/backoff"
)

func TestAfter(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		policy backoff.Policy
		want   []time.Duration // after 0, 1, 2, … failures
	}{
		"ten seconds to five minutes":      {backoff.Policy{First: 10 * s, Max: 300 * s}, []time.Duration{0, 10 * s, 20 * s, 40 * s, 80 * s, 160 * s, 300 * s, 300 * s}},
		"a power of two":                   {backoff.Policy{First: s, Max: 8 * s}, []time.Duration{0, s, 2 * s, 4 * s, 8 * s, 8 * s}},
		"first delay equal to the maximum": {backoff.Policy{First: s, Max: s}, []time.Duration{0, s, s, s}},
		"maximum below the first delay":    {backoff.Policy{First: 10 * s, Max: s}, []time.Duration{0, s, s}},
	} {
		for failures, want := range test.want {
			assert.Equal(t, want, test.policy.After(failures), "%s, failures: %d", name, failures)
		}
		assert.Equal(t, test.policy.Max, test.policy.After(math.MaxInt), name)
		assert.Zero(t, test.policy.After(-1), name)
	}
	longest := backoff.Policy{First: s, Max: math.MaxInt64}
	assert.Equal(t, time.Duration(math.MaxInt64), longest.After(1000), "the delay does not overflow")
}

func TestNext(t *testing.T) {
	const ms = time.Millisecond
	p := backoff.Policy{First: 100 * ms, Max: 350 * ms}
	for d, want := range map[time.Duration]time.Duration{
		0: 100 * ms, 10 * ms: 100 * ms, 100 * ms: 200 * ms, 175 * ms: 350 * ms, 200 * ms: 350 * ms, 350 * ms: 350 * ms, time.Hour: 350 * ms,
	} {
		assert.Equal(t, want, p.Next(d), d)
	}
}

func TestJitter(t *testing.T) {
	for _, test := range []struct {
		low, high, random float64
		want              time.Duration
	}{
		{1, 1, 0.7, time.Second},
		{0.5, 1, 0, 500 * time.Millisecond},
		{0.5, 1, 0.5, 750 * time.Millisecond},
		{1, 1.5, 0, time.Second},
		{1, 1.5, 0.5, 1250 * time.Millisecond},
		{0, 1, 0.25, 250 * time.Millisecond},
	} {
		assert.Equal(t, test.want, backoff.Jitter(time.Second, test.low, test.high, test.random), "%+v", test)
	}
}
