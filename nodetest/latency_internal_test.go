// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDefaultLatencyDependsOnItsArguments(t *testing.T) {
	first := defaultLatency(1, "RunPodSandbox", "a")
	assert.Equal(t, first, defaultLatency(1, "RunPodSandbox", "a"))
	assert.NotEqual(t, first, defaultLatency(2, "RunPodSandbox", "a"))
	assert.InDelta(t, 250, first.Milliseconds(), 50)
	assert.Equal(t, 3*time.Millisecond, defaultLatency(1, "List", ""))
}
