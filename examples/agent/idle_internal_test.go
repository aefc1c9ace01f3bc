// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The start is busy; a quiet minute gives back what it took, once, and so do the first one after the next burst, and one that finds the
// agent grown.
func TestIdle(t *testing.T) {
	const mib = 1 << 20
	var s idleness
	for i, look := range []struct {
		allocated, live uint64
		resident, after int64 // in memory, and when memory was given back
		percent         int
		giveBack        bool
	}{
		{900 * mib, 12 * mib, 60 * mib, 0, busyPercent, false},
		{1000 * mib, 10 * mib, 60 * mib, 42 * mib, idlePercent, true},
		{1160 * mib, 10 * mib, 45 * mib, 0, idlePercent, false},
		{1200 * mib, 10 * mib, 45*mib + 1, 41 * mib, idlePercent, true},
		{1210 * mib, 10 * mib, 44 * mib, 0, idlePercent, false},
		{1371 * mib, 10 * mib, 60 * mib, 0, busyPercent, false},
		{1400 * mib, 10 * mib, 41 * mib, 41 * mib, idlePercent, true},
		{1400 * mib, 0, 41 * mib, 0, idlePercent, false},
	} {
		percent, giveBack := s.next(look.allocated, look.live, look.resident)
		assert.Equal(t, look.percent, percent, i)
		assert.Equal(t, look.giveBack, giveBack, i)
		if giveBack {
			s.least = look.after
		}
	}
	s = idleness{}
	_, giveBack := s.next(20*mib, 0, 0)
	require.True(t, giveBack, "a start without pods is one, too")
	_, giveBack = s.next(20*mib, 0, 0)
	require.False(t, giveBack, "where nobody knows how much is in memory")
}

// A heap is profiled for those who can ask for that.
func TestProfile(t *testing.T) {
	rate, on, off := goruntime.MemProfileRate, true, false
	t.Cleanup(func() { goruntime.MemProfileRate = rate })
	for _, c := range []struct {
		config config
		want   int
	}{
		{config{serverConfig: serverConfig{EnableServer: &on}}, rate},
		{config{serverConfig: serverConfig{EnableServer: &on, EnableProfilingHandler: &off}}, 0},
		{config{}, 0},
	} {
		goruntime.MemProfileRate = rate
		c.config.profile()
		require.Equal(t, c.want, goruntime.MemProfileRate)
	}
}
