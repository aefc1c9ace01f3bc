// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package critest_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/seed81659283/nodeagent/cri/process"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156). Goroutines are still preempted and still checked for races.
func TestMain(m *testing.M) {
	process.Main() // makes the test binary the shim of a container of package process
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
