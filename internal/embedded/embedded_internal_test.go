// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package embedded

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cri/process"
)

func TestMain(m *testing.M) {
	process.Main()
	os.Exit(m.Run())
}

// newConfig returns a configuration without containerRuntimeEndpoint.
func newConfig(hasCgroups bool) *kubeletconfig.Configuration {
	c := &kubeletconfig.Configuration{CgroupsPerQOS: &hasCgroups}
	c.SetDefaults(kubeletconfig.Defaults{})
	return c
}

// The runtime can be opened without cgroups by any user, and with cgroups by root alone. The error names the field.
func TestOpenWithCgroupsNeedsRoot(t *testing.T) {
	runtime, err := Open(t.Context(), t.TempDir(), newConfig(false), nil)
	require.NoError(t, err)
	require.NoError(t, runtime.(*process.Runtime).Close())

	file := t.TempDir() + "/file"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	runtime, err = Open(t.Context(), file, newConfig(false), nil)
	require.Error(t, err)
	require.Nil(t, runtime, "no interface of a nil pointer")

	runtime, err = Open(t.Context(), t.TempDir(), newConfig(true), nil)
	if os.Geteuid() != 0 {
		require.ErrorContains(t, err, "cgroupsPerQOS: true: ")
		require.Nil(t, runtime)
		return
	}
	if err != nil {
		t.Skip("no cgroups: ", err)
	}
	require.NoError(t, runtime.(*process.Runtime).Close())
}

// A policy that needs cpusets is an error on a machine without them.
func TestPoliciesNeedCpuset(t *testing.T) {
	c := newConfig(true)
	require.NoError(t, checkCpuset(c, false))
	c.CPUManagerPolicy = "static"
	require.EqualError(t, checkCpuset(c, false), `cpuManagerPolicy: "static" needs the cgroup controller cpuset, which this machine does not have`)
	require.NoError(t, checkCpuset(c, true))
	c.CPUManagerPolicy, c.MemoryManagerPolicy = "none", "Static"
	require.EqualError(t, checkCpuset(c, false), `memoryManagerPolicy: "Static" needs the cgroup controller cpuset, which this machine does not have`)
}
