// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package plugin_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// skipWithFewFiles skips a test that needs 1,024 connections if the process may not open their files.
func skipWithFewFiles(t *testing.T) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur < 4096 {
		t.Skipf("the test needs 1024 connections, and may open %d files", limit.Cur)
	}
}
