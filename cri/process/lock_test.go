// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri/process"
)

// A second agent cannot open the root, and its error names the process that has it open.
func TestOpenErrorNamesProcessThatHoldsRoot(t *testing.T) {
	root := t.TempDir()
	first, err := process.Open(root, process.Options{})
	require.NoError(t, err)
	_, err = process.Open(root, process.Options{})
	require.EqualError(t, err, fmt.Sprintf("open process runtime %s: another agent has it open: process %d", root, os.Getpid()))
	require.NoError(t, first.Close())
	second, err := process.Open(root, process.Options{})
	require.NoError(t, err)
	require.NoError(t, second.Close())
}
