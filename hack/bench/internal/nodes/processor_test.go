// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package nodes

import (
	"os"
	"runtime"
	"testing"
)

// Timers of synctest bubbles crash the race detector of Go 1.26 on several processors (golang/go#78156).
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
