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

// newReconciler is lifecycle.New with options that must be valid.
func newReconciler(t testing.TB, rt cri.Runtime, observer lifecycle.Observer, o lifecycle.Options) *lifecycle.Reconciler {
	t.Helper()
	r, err := lifecycle.New(rt, observer, o)
	require.NoError(t, err)
	return r
}

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156). Goroutines are still preempted and still checked for races.
func TestMain(m *testing.M) {
	process.Main() // which starts this program as the keeper of a process
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}
