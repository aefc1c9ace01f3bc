// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) { os.Exit(program.Main(m)) }

func TestEventsOfAPod(t *testing.T) {
	rt, ctx := critest.New(critest.Options{}), t.Context()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var server sync.WaitGroup
	server.Go(func() { _ = criserver.New(rt, criserver.Options{}).Serve(ctx, l) })
	t.Cleanup(server.Wait)

	pod := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
	sandbox, err := rt.RunSandbox(ctx, pod)
	require.NoError(t, err)
	p := program.Start(t, "-cri", "unix://"+socket)
	p.AwaitLine(10*time.Second, "ContainerStarted default/web sandbox ready")

	id, err := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{
		Name: "server", Image: cri.ImageSpec{Image: "nginx"}, Labels: map[string]string{cri.LabelPodUID: "u1"},
	}, pod)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(ctx, id))
	p.AwaitLine(10*time.Second, "ContainerStarted default/web server running")
	require.NoError(t, rt.Kill("web/server", 137))
	p.AwaitLine(10*time.Second, "ContainerDied default/web server exited 137")
	require.NoError(t, rt.RemoveContainer(ctx, id))
	p.AwaitLine(10*time.Second, "ContainerRemoved default/web "+id)
	require.NoError(t, rt.StopSandbox(ctx, sandbox))
	require.NoError(t, rt.RemoveSandbox(ctx, sandbox))
	p.AwaitLine(10*time.Second, "ContainerRemoved default/web "+sandbox)
	require.Zero(t, p.Terminate(10*time.Second))
}

func TestNoRuntime(t *testing.T) {
	p := program.Start(t, "-cri", "unix:///nonexistent/cri.sock")
	p.AwaitLine(10*time.Second, "pleg:", "/nonexistent/cri.sock")
	require.Equal(t, 1, p.Wait(10*time.Second))
}
