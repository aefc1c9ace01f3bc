// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/seed81659283/nodeagent/internal/lifecycle/hook"
)

// Only whole seconds are subtracted, and at least two seconds remain.
func TestBudgetSubtractsWholeSeconds(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, row := range []struct{ grace, hookTook, waited, want time.Duration }{
		{30 * s, 0, 0, 30 * s},
		{30 * s, 12 * s, 0, 18 * s},
		{30 * s, 999 * ms, 0, 30 * s},
		{30 * s, 12*s + 999*ms, 0, 18 * s},
		{30 * s, 900 * ms, 900 * ms, 30 * s}, // both durations are truncated separately
		{30 * s, 1900 * ms, 5100 * ms, 24 * s},
		{30 * s, 28 * s, 0, 2 * s},
		{30 * s, 29 * s, 0, 2 * s},
		{30 * s, 30 * s, 0, 2 * s},
		{30 * s, 0, 31 * s, 2 * s},
		{30 * s, -5 * s, -5 * s, 30 * s}, // the clock was set back
		{1 * s, 0, 0, 2 * s},
		{0, 0, 0, 2 * s},
		{-1 * s, 0, 0, 2 * s},
	} {
		assert.Equal(t, row.want, hook.Budget(row.grace, row.hookTook, row.waited), "%+v", row)
	}
}
