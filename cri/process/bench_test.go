// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// BenchmarkStart measures StartContainer, after which the process runs.
func BenchmarkStart(b *testing.B) { benchStart(b, process.Options{}) }

// BenchmarkStartIsolated is BenchmarkStart with all options and two missing mount points.
func BenchmarkStartIsolated(b *testing.B) {
	benchStart(b, process.Options{Network: newNetwork(b), Mounts: true, Cgroups: newCgroups(b)},
		cri.Mount{HostPath: "/dev/null", ContainerPath: "/dev/termination-log"},
		cri.Mount{HostPath: b.TempDir(), ContainerPath: "/nodeagent-bench", ReadOnly: true})
}

func benchStart(b *testing.B, o process.Options, mounts ...cri.Mount) {
	rt, sandbox := benchPod(b, o)
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		id, err := rt.CreateContainer(b.Context(), sandbox, &cri.ContainerConfig{
			Name: fmt.Sprint(i), Command: []string{"/bin/sleep", "1000"}, LogPath: fmt.Sprint(i), Mounts: mounts,
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
	rt, sandbox := benchPod(b, process.Options{})
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

func benchPod(b *testing.B, o process.Options) (*process.Runtime, string) {
	rt, err := process.Open(b.TempDir(), o)
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

// The lower bound is a fork and exec of the same program by this process.
func BenchmarkRunExec(b *testing.B) {
	b.Run("floor", func(b *testing.B) {
		for b.Loop() {
			require.NoError(b, exec.Command("/bin/true").Run())
		}
	})
	rt, err := process.Open(b.TempDir(), process.Options{})
	require.NoError(b, err)
	defer rt.Close()
	sandbox, err := rt.RunSandbox(b.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "exec"}})
	require.NoError(b, err)
	defer func() { require.NoError(b, rt.RemoveSandbox(context.WithoutCancel(b.Context()), sandbox)) }()
	id, err := rt.CreateContainer(b.Context(), sandbox, &cri.ContainerConfig{Name: "c", Command: []string{"sleep", "1000"}}, nil)
	require.NoError(b, err)
	require.NoError(b, rt.StartContainer(b.Context(), id))
	b.Run("sync", func(b *testing.B) {
		for b.Loop() {
			_, err := rt.ExecSync(b.Context(), id, []string{"/bin/true"}, 0)
			require.NoError(b, err)
		}
	})
	for name, tty := range map[string]bool{"session": false, "terminal": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, err := rt.RunExec(b.Context(), id, []string{"/bin/true"}, cri.Session{Stdout: io.Discard, TTY: tty})
				require.NoError(b, err)
			}
		})
	}
	b.Run("output", func(b *testing.B) {
		b.SetBytes(64 << 20)
		for b.Loop() {
			_, err := rt.RunExec(b.Context(), id, []string{"head", "-c", "67108864", "/dev/zero"}, cri.Session{Stdout: io.Discard})
			require.NoError(b, err)
		}
	})
}
