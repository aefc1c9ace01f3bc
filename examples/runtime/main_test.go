// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/remote"
	"github.com/seed81659283/nodeagent/internal/exetest"
	"github.com/seed81659283/nodeagent/internal/isolated"
)

// program is the example program.
var program exetest.Program

func TestMain(m *testing.M) {
	os.Exit(isolated.Run(isolated.Mounts|isolated.Network, func() int { return program.Main(m) }))
}

// A restarted program serves the containers of a killed one.
func TestServe(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	socket := filepath.Join(dir, "cri.sock")
	args := []string{"-state", filepath.Join(dir, "state"), "-socket", socket}
	p := program.Start(t, args...)
	client, err := remote.Dial("unix://"+socket, remote.Options{})
	require.NoError(t, err)
	defer client.Close()
	serves := func() error { return client.Check(ctx) }
	exetest.Eventually(t, 10*time.Second, serves)
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode().Perm())

	pod := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u1", Name: "web", Namespace: "default"}}
	sandbox, err := client.RunSandbox(ctx, pod)
	require.NoError(t, err)
	id, err := client.CreateContainer(ctx, sandbox, &cri.ContainerConfig{
		Name: "main", Image: cri.ImageSpec{Image: "none"}, Labels: map[string]string{cri.LabelPodUID: "u1"},
		Command: []string{"/bin/sleep", "1000"},
	}, pod)
	require.NoError(t, err)
	require.NoError(t, client.StartContainer(ctx, id))
	p.Kill()

	p = program.Start(t, args...)
	exetest.Eventually(t, 10*time.Second, serves)
	snapshot, err := client.List(ctx)
	require.NoError(t, err)
	require.Len(t, snapshot.Containers, 1)
	require.Equal(t, cri.ContainerRunning, snapshot.Containers[0].State)
	require.NoError(t, client.StopSandbox(ctx, sandbox))
	require.NoError(t, client.RemoveSandbox(ctx, sandbox))
	require.Zero(t, p.Terminate(10*time.Second))
}
