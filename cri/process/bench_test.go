// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// BenchmarkStart measures from StartContainer to its return; the process runs then.
func BenchmarkStart(b *testing.B) {
	rt, sandbox := benchPod(b)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id, err := rt.CreateContainer(b.Context(), sandbox, &cri.ContainerConfig{
			Name: fmt.Sprint(i), Command: []string{"/bin/sleep", "1000"}, LogPath: fmt.Sprint(i),
		}, nil)
		require.NoError(b, err)
		b.StartTimer()
		require.NoError(b, rt.StartContainer(b.Context(), id))
		b.StopTimer()
		require.NoError(b, rt.RemoveContainer(b.Context(), id))
		b.StartTimer()
	}
}

// BenchmarkList measures a List of 100 running containers.
func BenchmarkList(b *testing.B) {
	rt, sandbox := benchPod(b)
	for i := range 100 {
		id, err := rt.CreateContainer(b.Context(), sandbox, &cri.ContainerConfig{
			Name: fmt.Sprint(i), Command: []string{"/bin/sleep", "1000"},
		}, nil)
		require.NoError(b, err)
		require.NoError(b, rt.StartContainer(b.Context(), id))
	}
	b.ReportAllocs()
	for b.Loop() {
		_, err := rt.List(b.Context())
		require.NoError(b, err)
	}
}

func benchPod(b *testing.B) (*process.Runtime, string) {
	rt, err := process.Open(b.TempDir(), process.Options{})
	require.NoError(b, err)
	sandbox, err := rt.RunSandbox(b.Context(), &cri.SandboxConfig{LogDirectory: b.TempDir()})
	require.NoError(b, err)
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(b, rt.RemoveSandbox(ctx, sandbox))
		require.NoError(b, rt.Close())
	})
	return rt, sandbox
}
