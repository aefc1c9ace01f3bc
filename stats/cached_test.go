// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package stats_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/seed81659283/nodeagent/cgroups"
)

// cpuTimeOf returns the CPU time of the only pod of a summary in nanoseconds.
func cpuTimeOf(t *testing.T, get func(context.Context) (*statsapi.Summary, error)) uint64 {
	t.Helper()
	s, err := get(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Pods, 1)
	return *s.Pods[0].CPU.UsageCoreNanoSeconds
}

func TestCachedSummaryIsAtMostMaxAgeOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestNode(t)
		web := h.pod("web", cgroups.Burstable, mib)
		k := h.collector()
		recent, never := k.Cached(10*time.Second), k.Cached(0)
		require.Zero(t, cpuTimeOf(t, recent.Summary))
		require.NoError(t, h.tree.AddCPU(web, cgroups.CPUStat{Usage: 7}))
		assert.EqualValues(t, 7, cpuTimeOf(t, recent.CPUAndMemory), "each kind of summary has its own cache")
		assert.EqualValues(t, 7, cpuTimeOf(t, never.Summary))
		assert.EqualValues(t, 7, cpuTimeOf(t, k.Summary))
		time.Sleep(10*time.Second - 1)
		assert.Zero(t, cpuTimeOf(t, recent.Summary))
		time.Sleep(time.Nanosecond)
		assert.EqualValues(t, 7, cpuTimeOf(t, recent.Summary))
	})
}
