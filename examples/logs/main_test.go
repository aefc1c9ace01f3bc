// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

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
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(program.Main(m))
}

func TestLogOfAContainer(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	rt, err := process.Open(filepath.Join(dir, "state"), process.Options{})
	require.NoError(t, err)
	defer rt.Close()
	socket := filepath.Join(dir, "cri.sock")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	var server sync.WaitGroup
	server.Go(func() { _ = criserver.New(rt, criserver.Options{}).Serve(ctx, l) })
	t.Cleanup(server.Wait)

	pod := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}, LogDirectory: filepath.Join(dir, "logs")}
	require.NoError(t, os.Mkdir(pod.LogDirectory, 0o750))
	sandbox, err := rt.RunSandbox(ctx, pod)
	require.NoError(t, err)
	defer func() { _ = rt.RemoveSandbox(ctx, sandbox) }()
	id, err := rt.CreateContainer(ctx, sandbox, &cri.ContainerConfig{
		Name: "server", Image: cri.ImageSpec{Image: "none"}, LogPath: "server.log", Labels: map[string]string{cri.LabelPodUID: "u1"},
		Command: []string{"/bin/sh", "-c", "echo one; echo two; while ! test -e " + dir + "/go; do sleep 0.1; done; echo three"},
	}, pod)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(ctx, id))

	p := program.Start(t, "-cri", "unix://"+socket, "default/web", "server")
	p.AwaitLine(10*time.Second, "two")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	require.Zero(t, p.Wait(10*time.Second), "the program exits with the container")
	require.Equal(t, "one\ntwo\nthree\n", p.Output())

	p = program.Start(t, "-cri", "unix://"+socket, "-f=false", "-tail", "1", "default/web")
	require.Zero(t, p.Wait(10*time.Second))
	require.Equal(t, "three\n", p.Output())
	p = program.Start(t, "-cri", "unix://"+socket, "default/web", "logger")
	p.AwaitLine(10*time.Second, `logs: no container "logger" in pod "default/web"`)
	require.Equal(t, 1, p.Wait(10*time.Second))
}
