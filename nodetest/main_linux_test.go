// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest_test

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/seed81659283/nodeagent/cri/process"
)

// TestMain runs the bubbles on one processor, because the race detector fails otherwise (golang/go#78156). The test program is also the shim and the
// process of real containers.
func TestMain(m *testing.M) {
	process.Main()
	if usage, isWorker := os.LookupEnv(workerVariable); isWorker {
		fmt.Fprintln(os.Stderr, runWorker(usage, os.Getenv(workerFile)))
		os.Exit(1)
	}
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
