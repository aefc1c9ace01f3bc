// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/seed81659283/nodeagent/cri/process"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156). Goroutines are still preempted and still checked for races.
func TestMain(m *testing.M) {
	process.Main() // which starts this program as the keeper of a process
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
