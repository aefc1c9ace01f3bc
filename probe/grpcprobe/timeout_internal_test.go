// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// What a result says of the time is what the probe was given, not what is left of it a moment later.
func TestTimeout(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		30*time.Second - 50*time.Millisecond: 30 * time.Second, 2970 * time.Millisecond: 3 * time.Second, 2*time.Second - 1: 2 * time.Second,
		200*time.Millisecond - 1: 200 * time.Millisecond, -time.Second: 0,
	} {
		assert.Equal(t, want, roundTimeout(left))
	}
}
