// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"fmt"
	"os"
	"testing"

	oci "github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// BenchmarkSystemdPod creates a pod with limits and removes it, with a real systemd: with this driver, and with the calls of
// the kubelet to opencontainers/cgroups.
func BenchmarkSystemdPod(b *testing.B) {
	if os.Getenv("NODEAGENT_SYSTEMD") == "" {
		b.Skip("needs a systemd that may be restarted: run with hack/vm/systemd.sh")
	}
	d, err := driver.Open(b.Context(), driver.Options{Systemd: true})
	require.NoError(b, err)
	defer d.Close()
	require.NoError(b, d.Apply(b.Context(), "kubepods", cgroups.Resources{CPUShares: 1024}))
	memory, pids := int64(64<<20), int64(100)

	b.Run("driver", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			p := cgroups.Path(fmt.Sprintf("kubepods/pod%d", i))
			require.NoError(b, d.Apply(b.Context(), p, cgroups.Resources{
				CPUShares: 512, CPUQuota: 50_000, CPUPeriod: 100_000, MemoryMax: &memory, PidsMax: &pids,
			}))
			require.NoError(b, d.Remove(b.Context(), p))
		}
	})
	b.Run("opencontainers", func(b *testing.B) {
		i := 0
		for b.Loop() {
			i++
			r := &oci.Resources{
				CpuWeight: 59, CpuQuota: 50_000, CpuPeriod: 100_000, Memory: memory, PidsLimit: &pids,
				SkipDevices: true, SkipFreezeOnSet: true,
			}
			m, err := manager.New(&oci.Cgroup{
				Systemd: true, Parent: "kubepods.slice", Name: fmt.Sprintf("kubepods-oci%d.slice", i), Resources: r,
			})
			require.NoError(b, err)
			require.NoError(b, m.Apply(-1))
			require.NoError(b, m.Set(r))
			require.NoError(b, m.Destroy())
		}
	})
	require.NoError(b, d.Remove(b.Context(), "kubepods"))
}
