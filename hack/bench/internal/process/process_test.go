// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	mib, err := parseResident("Name:\tagent\nVmHWM:\t  9999 kB\nVmRSS:\t   26624 kB\n")
	require.NoError(t, err)
	require.InDelta(t, 26, mib, 0)
	_, err = parseResident("Name:\tagent\n")
	require.ErrorContains(t, err, "it has no VmRSS")

	spent, err := parseCPU("7 (a ) b) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 9 9 20 0 1 0 100 0 0")
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, spent)
	for _, bad := range []string{"", "7 (a) S 1", "7 (a) S 1 7 7 0 -1 4194304 100 0 0 0 x 50"} {
		_, err = parseCPU(bad)
		require.ErrorContains(t, err, "parse process stat", bad)
	}
}
