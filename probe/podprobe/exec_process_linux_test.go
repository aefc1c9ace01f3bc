// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podprobe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/process"
)

// TestExecProcess runs commands with the process runtime.
func TestExecProcess(t *testing.T) {
	rt, err := process.Open(t.TempDir(), process.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, rt.Close()) })
	testExec(t, execHost{runtime: rt, knowsChildren: true, cutsOutput: true})
}
