// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"os"
	"runtime"
	"testing"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156).
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
