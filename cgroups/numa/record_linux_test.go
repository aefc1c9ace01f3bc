// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// An agent that cannot open its record, because it has too many open files, does not start, and keeps the record for its next start.
func TestRecordStaysIfItCannotBeRead(t *testing.T) {
	policy := newPolicy(t, []topology.Node{{Memory: 1 << 30}})
	options := numa.AllocatorOptions{Record: filepath.Join(t.TempDir(), "memory"), Error: func(err error) { t.Errorf("reported: %v", err) }}
	a, err := numa.NewAllocator(policy, options)
	require.NoError(t, err)
	r, err := a.Begin(newPod("pod", map[string]uint64{numa.Memory: 1 << 20}))
	require.NoError(t, err)
	require.NoError(t, r.Take(device.Hint{}))
	require.NoError(t, r.Commit())

	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Max: limit.Max}))
	_, err = numa.NewAllocator(policy, options)
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	require.ErrorIs(t, err, syscall.EMFILE)

	a, err = numa.NewAllocator(policy, options)
	require.NoError(t, err)
	require.Equal(t, []string{"pod"}, a.State().Pods())
}
