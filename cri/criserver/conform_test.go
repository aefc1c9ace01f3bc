// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package criserver_test

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/remote"
)

// serveAndDial serves a runtime on a socket until the test ends and returns a client.
func serveAndDial(t *testing.T, rt cri.Runtime, o criserver.Options) *remote.Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, criserver.New(rt, o).Serve(ctx, l)) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return dialClient(t, path)
}

func dialClient(t *testing.T, path string) *remote.Client {
	t.Helper()
	client, err := remote.Dial(path, remote.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// The conformance suite passes through the server and the client.
func TestRuntimeConformsThroughServerAndClient(t *testing.T) {
	for name, wrap := range map[string]func(*critest.Runtime) cri.Runtime{
		"complete lists": func(rt *critest.Runtime) cri.Runtime { return rt },
		"summary lists":  func(rt *critest.Runtime) cri.Runtime { return critest.SummaryRuntime{Runtime: rt} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			critest.TestRuntime(t, critest.Fixture{
				New: func(t *testing.T) cri.Runtime {
					return serveAndDial(t, wrap(critest.New(critest.Options{
						Script: critest.SuiteScript,
						Images: []cri.Image{critest.NewImage("busybox", 1<<20)},
					})), criserver.Options{})
				},
				Reopen:          func(_ *testing.T, rt cri.Runtime) cri.Runtime { return rt },
				Image:           "busybox",
				IsolatedNetwork: true,
			})
		})
	}
}
