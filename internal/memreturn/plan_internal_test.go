// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package memreturn

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNextReturnsMemoryOncePerIdlePhase(t *testing.T) {
	const mib = 1 << 20
	type period struct {
		name     string
		usage    usage
		want     plan
		returned int64 // resident bytes after the return
	}
	idle, idleAndReturn, busy := plan{gcPercent: idlePercent}, plan{idlePercent, true}, plan{gcPercent: busyPercent}
	for _, phase := range [][]period{{
		{"busy start", usage{900 * mib, 12 * mib, 60 * mib}, busy, 0},
		{"first quiet minute", usage{1000 * mib, 10 * mib, 60 * mib}, idleAndReturn, 42 * mib},
		{"quiet", usage{1160 * mib, 10 * mib, 45 * mib}, idle, 0},
		{"grown by more than 3 MiB", usage{1200 * mib, 10 * mib, 45*mib + 1}, idleAndReturn, 41 * mib},
		{"grown by 3 MiB", usage{1210 * mib, 10 * mib, 44 * mib}, idle, 0},
		{"busy again", usage{1371 * mib, 10 * mib, 60 * mib}, busy, 0},
		{"quiet again", usage{1400 * mib, 10 * mib, 41 * mib}, idleAndReturn, 41 * mib},
		{"no live heap reported", usage{1400 * mib, 0, 41 * mib}, idle, 0},
	}, {
		{"start without pods", usage{20 * mib, 0, 0}, idleAndReturn, 0},
		{"resident memory not reported", usage{20 * mib, 0, 0}, idle, 0},
	}} {
		var s state
		for _, p := range phase {
			assert.Equal(t, p.want, s.nextPlan(p.usage), p.name)
			if p.want.returnMemory {
				s.returned = p.returned
			}
		}
	}
}
