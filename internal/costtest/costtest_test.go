// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package costtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// sink keeps the compiler from leaving out what the functions of the tests allocate.
var sink []byte

// A function that allocates more than it may fails, however little of it is left when it returns: a parser that makes
// gigabytes of garbage is killed before anybody collects it.
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

// A function that takes longer than it may fails, so that no input holds up a parser.
func TestTimeIsBounded(t *testing.T) {
	limit := Limit{Bytes: 1 << 20, Time: 5 * time.Millisecond}
	assert.ErrorContains(t, checkCost(limit, func() { time.Sleep(50 * time.Millisecond) }), "the limit is 5ms")
}

// One slow run is no failure: the machine may have been busy with something else.
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

// A zero limit is the one for manifests of 1 MiB, not none.
func TestZeroLimit(t *testing.T) {
	want := Limit{Bytes: 64 << 20, Time: time.Second}
	if hasRaceDetector() {
		want = Limit{Bytes: 128 << 20, Time: 10 * time.Second}
	}
	assert.Equal(t, want, Limit{}.withDefaults())
	Check(t, Limit{}, func() {})
}
