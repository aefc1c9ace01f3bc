// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/process"
)

func TestMain(m *testing.M) {
	process.Main() // the test binary is the program that becomes the shim
	if len(os.Args) == 2 && os.Args[0] == agentName {
		os.Exit(agentMain(os.Args[1]))
	}
	os.Exit(m.Run())
}

func TestRuntime(t *testing.T) {
	critest.TestRuntime(t, critest.Fixture{
		New: func(t *testing.T) cri.Runtime {
			rt, err := process.Open(t.TempDir(), process.Options{})
			require.NoError(t, err)
			t.Cleanup(func() { rt.Close() })
			return rt
		},
		Logs: true,
	})
}
