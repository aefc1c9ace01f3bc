// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A result contains the configured timeout, not the slightly shorter time that remained at the call.
func TestRoundTimeout(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		30*time.Second - 50*time.Millisecond: 30 * time.Second, 2970 * time.Millisecond: 3 * time.Second, 2*time.Second - 1: 2 * time.Second,
		200*time.Millisecond - 1: 200 * time.Millisecond, -time.Second: 0,
	} {
		assert.Equal(t, want, roundTimeout(left))
	}
}
