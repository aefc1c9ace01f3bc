// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletstate_test

import (
	"os"
	"runtime"
	"testing"
)

// TestMain runs the tests on one processor: the race detector of Go 1.26 sometimes crashes when timers of a synctest bubble fire
// on several (golang/go#78156). Goroutines are still preempted and checked for races.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
