// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"os"
	"runtime"
	"testing"
)

// TestMain runs the bubbles on one processor, because the race detector fails otherwise (golang/go#78156). The test program is also the shim and the
// process of real containers, see package worker.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
