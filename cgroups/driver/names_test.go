// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
)

// parseName returns the path for each name that cgroupName returns.
func TestParseReversesName(t *testing.T) {
	for _, n := range []names{{}, {root: "agent"}, {root: "a/b"}, {systemd: true}, {root: "agent", systemd: true}} {
		for _, p := range []cgroups.Path{"", "kubepods", "kubepods/burstable/pod1234-ab"} {
			name, err := n.cgroupName(p)
			require.NoError(t, err)
			back, err := n.parseName(name)
			require.NoError(t, err, name)
			require.Equal(t, p, back, name)
		}
	}
	for _, name := range []string{"/elsewhere/pod", "/agentx/pod", "/"} {
		_, err := names{root: "agent"}.parseName(name)
		require.EqualError(t, err, `cgroup "`+name+`" is not below /agent`)
	}
	_, err := names{}.parseName("/a/../b")
	require.ErrorContains(t, err, `component ".."`)
}
