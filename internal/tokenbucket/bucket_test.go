// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package tokenbucket_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/tokenbucket"
)

func TestTakeTokenLimitsRateAndBurst(t *testing.T) {
	l := tokenbucket.New(100, 10)
	now := time.Unix(1_000, 0)
	admitted := func(requests int) (n int) {
		for range requests {
			if l.TakeToken(now) {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 10, admitted(20), "a burst")
	assert.Zero(t, admitted(1))
	now = now.Add(25 * time.Millisecond)
	assert.Equal(t, 2, admitted(20), "100 requests per second")
	now = now.Add(5 * time.Millisecond)
	assert.Equal(t, 1, admitted(20), "fractions of a token are kept")
	now = now.Add(-time.Hour)
	assert.Zero(t, admitted(20), "no request is admitted after the clock is set back")
	now = now.Add(2 * time.Hour)
	assert.Equal(t, 10, admitted(20), "a long pause does not raise the burst")
}
