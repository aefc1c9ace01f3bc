// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/lifecycle"
)

// newReconciler calls lifecycle.New with options that must be valid.
func newReconciler(t testing.TB, rt cri.Runtime, observer lifecycle.Observer, o lifecycle.Options) *lifecycle.Reconciler {
	t.Helper()
	r, err := lifecycle.New(rt, observer, o)
	require.NoError(t, err)
	return r
}

// TestMain runs the tests on one processor: the race detector of Go 1.26 sometimes crashes when timers of a synctest bubble fire
// on several (golang/go#78156). Goroutines are still preempted and checked for races.
func TestMain(m *testing.M) {
	process.Main() // package process starts this program as the supervisor of a process
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
