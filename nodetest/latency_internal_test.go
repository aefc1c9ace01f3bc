// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDefaultLatencyDependsOnItsArguments(t *testing.T) {
	now := time.Now()
	first := defaultLatency(1, now, "RunPodSandbox", "a")
	assert.Equal(t, first, defaultLatency(1, now, "RunPodSandbox", "a"))
	assert.NotEqual(t, first, defaultLatency(2, now, "RunPodSandbox", "a"))
	assert.InDelta(t, 250, first.Milliseconds(), 50)
	assert.InDelta(t, 3, defaultLatency(1, now, "List", "").Seconds()*1000, 0.6)
}
