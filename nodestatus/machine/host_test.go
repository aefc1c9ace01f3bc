// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

func TestHostWithoutRootHasSizeOfRootFileSystem(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc and /sys")
	}
	info, err := machine.Host{}.Machine(t.Context())
	require.NoError(t, err)
	require.Positive(t, info.RootFS)
	require.Positive(t, info.CPUs)
	require.Positive(t, info.Memory)

	read, err := machine.Read(os.DirFS("/"))
	require.NoError(t, err)
	read.RootFS = info.RootFS
	require.Equal(t, read, info, "Machine returns the values of Read and the size")
	of, err := machine.Host{Root: "/"}.Machine(t.Context())
	require.NoError(t, err)
	require.Equal(t, info.RootFS, of.RootFS)
}

// If the root directory does not exist, for example because the agent creates it later, all other values are valid.
func TestHostWhoseRootIsMissingReturnsOtherValuesAndError(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc and /sys")
	}
	root := filepath.Join(t.TempDir(), "none")
	info, err := machine.Host{Root: root}.Machine(t.Context())
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, "size of the file system of "+root)
	require.Zero(t, info.RootFS)
	require.Positive(t, info.Memory)
}
