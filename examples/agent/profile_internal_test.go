// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	goruntime "runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeapIsProfiledWhereHandlerServesIt(t *testing.T) {
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
