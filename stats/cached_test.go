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

// cpu returns how many nanoseconds the only pod of a summary has run for.
func cpu(t *testing.T, get func(context.Context) (*statsapi.Summary, error)) uint64 {
	t.Helper()
	s, err := get(t.Context())
	require.NoError(t, err)
	require.Len(t, s.Pods, 1)
	return *s.Pods[0].CPU.UsageCoreNanoSeconds
}

func TestCachedSummaryIsAtMostMaxAgeOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		web := h.pod("web", cgroups.Burstable, mib)
		k := h.collector()
		recent, never := k.Cached(10*time.Second), k.Cached(0)
		require.Zero(t, cpu(t, recent.Summary))
		require.NoError(t, h.tree.AddCPU(web, cgroups.CPUStat{Usage: 7}))
		assert.EqualValues(t, 7, cpu(t, recent.CPUAndMemory), "each form is measured")
		assert.EqualValues(t, 7, cpu(t, never.Summary))
		assert.EqualValues(t, 7, cpu(t, k.Summary))
		time.Sleep(10*time.Second - 1)
		assert.Zero(t, cpu(t, recent.Summary))
		time.Sleep(time.Nanosecond)
		assert.EqualValues(t, 7, cpu(t, recent.Summary))
	})
}
