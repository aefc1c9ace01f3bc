// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/internal/isolated"
)

func TestMain(m *testing.M) {
	process.Main() // makes the test binary the shim of a container
	if len(os.Args) == 2 && os.Args[0] == agentName {
		os.Exit(agentMain(os.Args[1]))
	}
	if len(os.Args) == 3 && os.Args[0] == isolatedAgentName {
		os.Exit(isolatedAgentMain(os.Args[1], os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[0] == sessionAgentName {
		os.Exit(sessionAgentMain(os.Args[1], os.Args[2]))
	}
	// Mounts, interfaces and other remains of a test are removed with the namespaces.
	os.Exit(isolated.Run(isolated.Mounts|isolated.Network, func() int { return programWithoutMain.Main(m) }))
}

func TestRuntime(t *testing.T) {
	var roots sync.Map // state directories by runtime, because cases run in parallel
	open := func(t *testing.T, root string) cri.Runtime {
		rt, err := process.Open(root, process.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { rt.Close() })
		roots.Store(cri.Runtime(rt), root)
		return rt
	}
	critest.TestRuntime(t, critest.Fixture{
		New: func(t *testing.T) cri.Runtime { return open(t, t.TempDir()) },
		Reopen: func(t *testing.T, rt cri.Runtime) cri.Runtime {
			require.NoError(t, rt.(*process.Runtime).Close())
			root, _ := roots.Load(rt)
			return open(t, root.(string))
		},
		Logs: true,
	})
}
