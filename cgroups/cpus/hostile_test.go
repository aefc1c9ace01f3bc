// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cpus_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/topology"
)

// A checkpoint below the limit of bytes with very many containers would need 64 times its size in memory.
func TestCheckpointWithManyContainersIsAnError(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"policyName":"static","defaultCpuSet":"0-3","entries":{"pod":{"a":""`)
	for i := 0; b.Len() < 15<<20; i++ {
		b.WriteString(`,"` + strconv.FormatInt(int64(i), 36) + `":""`)
	}
	b.WriteString(`}},"checksum":0}`)
	_, _, err := cpus.DecodeCheckpoint([]byte(b.String()))
	require.ErrorContains(t, err, "quotation marks, more than 262144")
}

// A list of CPUs that repeats the largest range would take minutes below the limit of bytes.
func TestListThatRepeatsCPUsIsAnError(t *testing.T) {
	list := strings.Repeat("0-2047,", 100_000) + "0"
	_, _, err := cpus.DecodeCheckpoint([]byte(`{"policyName":"static","defaultCpuSet":"` + list + `","checksum":0}`))
	require.ErrorContains(t, err, "CPUs are listed several times: the list has more than 4096")
	_, err = topology.ParseCPUSet(list)
	require.ErrorContains(t, err, "CPUs are listed several times: the list has more than 4096")
	set, err := topology.ParseCPUSet("0-2047,0-2047")
	require.NoError(t, err)
	require.Equal(t, topology.MaxCPUs, set.Len())
}
