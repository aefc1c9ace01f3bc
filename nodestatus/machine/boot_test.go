// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/nodestatus/machine"
)

func TestBootTimeReadsProcStat(t *testing.T) {
	root := fstest.MapFS{"proc/stat": {Data: []byte("cpu  1 2 3\nctxt 5\nbtime 1700000000\nprocesses 7\n")}}
	require.Equal(t, time.Unix(1700000000, 0), machine.BootTime(root))
	require.Zero(t, machine.BootTime(fstest.MapFS{"proc/stat": {Data: []byte("btime soon\n")}}))
	require.Zero(t, machine.BootTime(fstest.MapFS{}))
}
