// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package numa_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/device"
)

// An agent that cannot open its record, because it has too many open files, does not start, and keeps the record for its next start.
func TestRecordStaysIfItCannotBeRead(t *testing.T) {
	machine, err := topology.Parse("1 socket 1 node 4 cores 1024 MiB")
	require.NoError(t, err)
	reserved := map[string]resource.Quantity{numa.Memory: resource.MustParse("100Mi")}
	policy, err := numa.NewPolicy(machine, numa.Config{Policy: numa.PolicyStatic, SystemReserved: reserved, ReservedMemory: []numa.Reservation{{Limits: reserved}}})
	require.NoError(t, err)
	options := numa.AllocatorOptions{Record: filepath.Join(t.TempDir(), "memory"), Error: func(err error) { t.Errorf("reported: %v", err) }}
	a, err := numa.NewAllocator(policy, options)
	require.NoError(t, err)
	r, err := a.Begin(&numa.Pod{UID: "pod", Guaranteed: true, Containers: []numa.Container{{Name: "a", Requests: map[string]uint64{numa.Memory: 1 << 20}}}})
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
