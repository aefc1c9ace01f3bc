// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The start is busy; a quiet minute gives back what it took, once, and so does the first one after the next burst.
func TestIdle(t *testing.T) {
	const mib = 1 << 20
	var s idleness
	for i, look := range []struct {
		allocated, live uint64
		percent         int
		became          bool
	}{
		{900 * mib, 12 * mib, busyPercent, false},
		{1000 * mib, 10 * mib, idlePercent, true},
		{1160 * mib, 10 * mib, idlePercent, false},
		{1321 * mib, 10 * mib, busyPercent, false},
		{1400 * mib, 10 * mib, idlePercent, true},
		{1400 * mib, 0, idlePercent, false},
	} {
		percent, became := s.next(look.allocated, look.live)
		assert.Equal(t, look.percent, percent, i)
		assert.Equal(t, look.became, became, i)
	}
	s = idleness{}
	_, became := s.next(20*mib, 0)
	require.True(t, became, "a start without pods is one, too")
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
