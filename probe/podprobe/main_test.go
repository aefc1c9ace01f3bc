// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"runtime"
	"testing"

	"github.com/seed81659283/nodeagent/cri/process"
)

func TestMain(m *testing.M) {
	process.Main() // the test binary is also the shim of a container
	// The race detector of Go 1.26 crashes with timers of a synctest bubble on several processors (golang/go#78156).
	runtime.GOMAXPROCS(1)
	m.Run()
}
