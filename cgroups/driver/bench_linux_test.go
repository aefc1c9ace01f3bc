// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	oci "github.com/opencontainers/cgroups"
	ocifs "github.com/opencontainers/cgroups/fs"
	ocifs2 "github.com/opencontainers/cgroups/fs2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
)

// BenchmarkIntegrationPod creates, limits and removes the cgroup of a pod: with the minimal system calls, with the driver, and
// with the manager of opencontainers/cgroups.
func BenchmarkIntegrationPod(b *testing.B) {
	d := openAt(b, driver.Options{Root: root(b)})
	require.NoError(b, d.Apply(b.Context(), "kubepods/burstable/first", podLimits())) // create the parents and enable controllers
	b.Run("syscalls", func(b *testing.B) {
		if d.Host().Mode != driver.V2 {
			b.Skip("needs cgroup v2")
		}
		for b.Loop() {
			benchmarkSyscalls(b, dirs(d, pod)[0])
		}
	})
	b.Run("driver", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, d.Apply(b.Context(), pod, benchmarkLimits()))
			require.NoError(b, d.Remove(b.Context(), pod))
		}
	})
	b.Run("opencontainers", func(b *testing.B) {
		b.ReportAllocs()
		name, err := d.Name(pod)
		require.NoError(b, err)
		for b.Loop() {
			m := newUpstreamManager(b, d, name)
			require.NoError(b, m.Apply(-1))
			require.NoError(b, m.Set(upstreamLimits()))
			require.NoError(b, m.Destroy())
		}
	})
	b.Run("driver again", func(b *testing.B) {
		require.NoError(b, d.Apply(b.Context(), pod, benchmarkLimits()))
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, d.Apply(b.Context(), pod, benchmarkLimits()))
		}
	})
}

// benchmarkLimits returns the limits of a Burstable pod with memory QoS.
func benchmarkLimits() cgroups.Resources {
	r := podLimits()
	r.MemoryMin, r.MemoryLow = new(int64(16<<20)), new(int64(32<<20))
	return r
}

// benchmarkSyscalls makes the minimal system calls: mkdir, and three calls per file.
func benchmarkSyscalls(b testing.TB, dir string) {
	require.NoError(b, unix.Mkdir(dir, 0o755))
	for _, f := range [...][2]string{
		{"/cpu.weight", strconv.FormatUint(cgroups.WeightFromShares(512, 0), 10)},
		{"/cpu.max", "150000 100000"},
		{"/memory.min", "16777216"},
		{"/memory.low", "33554432"},
		{"/memory.max", "67108864"},
		{"/pids.max", "100"},
	} {
		fd, err := unix.Open(dir+f[0], unix.O_WRONLY|unix.O_CLOEXEC, 0)
		require.NoError(b, err)
		_, err = unix.Write(fd, []byte(f[1]))
		require.NoError(b, err)
		unix.Close(fd)
	}
	require.NoError(b, unix.Rmdir(dir))
}

// newUpstreamManager returns the manager that the kubelet creates for each call.
func newUpstreamManager(b testing.TB, d *driver.Driver, name string) oci.Manager {
	config := &oci.Cgroup{Path: name, Resources: &oci.Resources{SkipDevices: true}}
	if d.Host().Mode == driver.V2 {
		m, err := ocifs2.NewManager(config, "/sys/fs/cgroup"+name)
		require.NoError(b, err)
		return m
	}
	m, err := ocifs.NewManager(config, nil)
	require.NoError(b, err)
	return m
}

func upstreamLimits() *oci.Resources {
	r := &oci.Resources{
		CpuShares: 512, CpuWeight: oci.ConvertCPUSharesToCgroupV2Value(512), CpuQuota: 150000, CpuPeriod: 100000,
		PidsLimit: new(int64(100)), Memory: 64 << 20, SkipDevices: true,
	}
	if oci.IsCgroup2UnifiedMode() {
		r.Unified = map[string]string{"memory.min": "16777216", "memory.low": "33554432"}
	}
	return r
}

// A pod costs at most 1.3 times the minimal system calls, and less than with opencontainers/cgroups. The variants run in turn and
// the fastest run of each counts, so that a busy machine does not matter.
func TestIntegrationPodCostsAtMost130PercentOfSyscalls(t *testing.T) {
	d := openDriver(t)
	requireFeature(t, d, "memory")
	require.NoError(t, d.Apply(t.Context(), "kubepods/burstable/first", podLimits()))
	name, err := d.Name(pod)
	require.NoError(t, err)
	fastest := map[string]time.Duration{}
	measure := func(what string, work func()) {
		begin := time.Now()
		work()
		if took := time.Since(begin); fastest[what] == 0 || took < fastest[what] {
			fastest[what] = took
		}
	}
	for range 200 {
		if d.Host().Mode == driver.V2 {
			measure("syscalls", func() { benchmarkSyscalls(t, dirs(d, pod)[0]) })
		}
		measure("driver", func() {
			require.NoError(t, d.Apply(t.Context(), pod, benchmarkLimits()))
			require.NoError(t, d.Remove(t.Context(), pod))
		})
		measure("opencontainers", func() {
			m := newUpstreamManager(t, d, name)
			require.NoError(t, m.Apply(-1))
			require.NoError(t, m.Set(upstreamLimits()))
			require.NoError(t, m.Destroy())
		})
	}
	t.Log(fastest)
	assert.Less(t, fastest["driver"], fastest["opencontainers"])
	if d.Host().Mode == driver.V2 {
		assert.Less(t, fastest["driver"], fastest["syscalls"]*13/10)
	}
}

// BenchmarkIntegrationStats reads all usage of a pod.
func BenchmarkIntegrationStats(b *testing.B) {
	d := openAt(b, driver.Options{Root: root(b)})
	require.NoError(b, d.Apply(b.Context(), pod, podLimits()))
	if _, err := os.Stat(dirs(d, pod)[0]); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Stats(b.Context(), pod); err != nil {
			b.Fatal(err)
		}
	}
}
