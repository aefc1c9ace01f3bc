// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package costtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// sink keeps the compiler from removing the allocations in the tested functions.
var sink []byte

// A function that allocates more than the limit fails, even if it retains nothing. A parser that creates gigabytes of
// garbage is OOM-killed before the garbage collector runs.
func TestAllocationsAreBounded(t *testing.T) {
	allocate := func() {
		for range 64 {
			sink = make([]byte, 1<<20)
		}
		sink = nil
	}
	limit := Limit{Bytes: 32 << 20, Time: time.Minute}
	assert.ErrorContains(t, checkCost(limit, allocate), "the limit is 33554432")
	limit.Bytes = 96 << 20
	assert.NoError(t, checkCost(limit, allocate))
}

// A function that takes longer than the limit fails, so that no input blocks a parser.
func TestTimeIsBounded(t *testing.T) {
	limit := Limit{Bytes: 1 << 20, Time: 5 * time.Millisecond}
	assert.ErrorContains(t, checkCost(limit, func() { time.Sleep(50 * time.Millisecond) }), "the limit is 5ms")
}

// A single expensive run is no failure, because another program may have loaded the machine.
func TestTheCheapestRunCounts(t *testing.T) {
	n := 0
	limit := Limit{Bytes: 1 << 20, Time: time.Minute}
	assert.NoError(t, checkCost(limit, func() {
		if n++; n == 1 {
			sink = make([]byte, 2<<20)
		}
	}))
	assert.Equal(t, 2, n)
}

// A zero limit means the limit for manifests of 1 MiB.
func TestZeroLimit(t *testing.T) {
	want := Limit{Bytes: 64 << 20, Time: time.Second}
	if hasRaceDetector() {
		want = Limit{Bytes: 128 << 20, Time: 10 * time.Second}
	}
	assert.Equal(t, want, Limit{}.withDefaults())
	Check(t, Limit{}, func() {})
}
