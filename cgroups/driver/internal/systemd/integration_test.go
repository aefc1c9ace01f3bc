// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd"
)

// The client with a real systemd, on the message bus and on the private socket.
func TestIntegrationSystemd(t *testing.T) {
	if os.Getenv("NODEAGENT_SYSTEMD") == "" {
		t.Skip("needs a systemd that may be restarted: run with hack/vm/systemd.sh")
	}
	for _, socket := range systemd.SystemSockets() {
		t.Run(filepath.Base(socket.Path), func(t *testing.T) {
			client := systemd.New(systemd.Options{Sockets: []systemd.Socket{socket}})
			t.Cleanup(func() { assert.NoError(t, client.Close()) })
			version, err := client.Version(t.Context())
			require.NoError(t, err)
			t.Log("systemd", version)

			t.Run("units", func(t *testing.T) { testRealUnits(t, client) })
			t.Run("outage", func(t *testing.T) { testRealOutage(t, client) })
			t.Run("leftovers", func(t *testing.T) { testRealLeftovers(t, client) })
			t.Run("many", func(t *testing.T) { testRealMany(t, client) })
			assert.Empty(t, realSlices(t), "no slice remains loaded")
		})
	}
}

func realSlice(t *testing.T, path cgroups.Path, r cgroups.Resources) systemd.Slice {
	t.Helper()
	unit, err := path.Slice()
	require.NoError(t, err)
	parent, err := path.Parent().Slice()
	require.NoError(t, err)
	props, _, err := systemd.Properties(r, false, cgroups.WeightLogQuadratic)
	require.NoError(t, err)
	return systemd.Slice{Unit: unit, Parent: parent, Description: string(path), Properties: props}
}

func realFile(t *testing.T, path cgroups.Path, file string) string {
	t.Helper()
	dir, err := path.Systemd()
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", dir, file))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// eventuallyFile polls for a value: systemd replies before it writes the file.
func eventuallyFile(t *testing.T, path cgroups.Path, file, want string) {
	t.Helper()
	assert.Eventually(t, func() bool { return realFile(t, path, file) == want }, time.Minute, 5*time.Millisecond,
		"%s is not %s", file, want)
}

func realSlices(t *testing.T) []string {
	t.Helper()
	var names []string
	assert.Eventually(t, func() bool { // systemd unloads a stopped unit a moment later
		names = nil
		for line := range strings.Lines(systemctl(t, "list-units", "--all", "--plain", "--no-legend", "--type=slice")) {
			if name := strings.Fields(line)[0]; strings.HasPrefix(name, "real") {
				names = append(names, name)
			}
		}
		return len(names) == 0
	}, time.Minute, 50*time.Millisecond)
	return names
}

func systemctl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemctl", args...).CombinedOutput()
	require.NoError(t, err, "systemctl %v: %s", args, out)
	return string(out)
}

func testRealUnits(t *testing.T, client *systemd.Client) {
	const pod = cgroups.Path("real/burstable/pod1234-ab")
	mib := func(n int64) *int64 { n <<= 20; return &n }
	pids, none := int64(42), int64(0)
	r := cgroups.Resources{
		CPUShares: 2048, CPUQuota: 11_000, CPUPeriod: 100_000, PidsMax: &pids, SwapMax: &none,
		MemoryMin: mib(1), MemoryLow: mib(2), MemoryHigh: mib(30), MemoryMax: mib(40),
	}
	for _, parent := range []cgroups.Path{"real", "real/burstable"} {
		require.NoError(t, ensure(t, client, realSlice(t, parent, cgroups.Resources{})))
	}
	started, err := client.Ensure(t.Context(), realSlice(t, pod, r))
	require.NoError(t, err)
	assert.True(t, started)
	for file, want := range map[string]string{
		"cpu.weight": "174", "cpu.max": "11000 100000", "pids.max": "42", "memory.min": "1048576", "memory.low": "2097152",
		"memory.high": "31457280", "memory.max": "41943040",
	} {
		assert.Equal(t, want, realFile(t, pod, file), "%s as soon as Ensure returns", file)
	}

	r = cgroups.Resources{CPUQuota: cgroups.Unlimited, MemoryMax: mib(50), PidsMax: new(int64)}
	*r.PidsMax = cgroups.Unlimited
	started, err = client.Ensure(t.Context(), realSlice(t, pod, r))
	require.NoError(t, err)
	assert.False(t, started)
	eventuallyFile(t, pod, "memory.max", "52428800")
	eventuallyFile(t, pod, "cpu.max", "max 100000")
	eventuallyFile(t, pod, "pids.max", "max")
	assert.Equal(t, "174", realFile(t, pod, "cpu.weight"), "unset properties stay unchanged")

	// A property in force is not set again, because systemd would then rewrite the file.
	r.CPUShares, r.CpusetCPUs, r.MemoryMin = 2048, "0", new(int64(1<<20))
	require.NoError(t, ensure(t, client, realSlice(t, pod, r)))
	kept, err := filepath.Glob("/run/systemd/*/real-burstable-pod1234_ab.slice.d/*.conf")
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	for _, file := range kept {
		require.NoError(t, os.Rename(file, file+".moved"))
	}
	require.NoError(t, ensure(t, client, realSlice(t, pod, r)))
	for _, file := range kept {
		assert.NoFileExists(t, file)
		require.NoError(t, os.Rename(file+".moved", file))
	}

	systemctl(t, "daemon-reload")
	systemctl(t, "daemon-reexec")
	require.NoError(t, ensure(t, client, realSlice(t, pod, cgroups.Resources{})))
	assert.Equal(t, "52428800", realFile(t, pod, "memory.max"))
	assert.Equal(t, "174", realFile(t, pod, "cpu.weight"))

	require.NoError(t, client.Stop(t.Context(), "real.slice"), "Stop of a slice also stops its descendants")
	_, err = os.Stat("/sys/fs/cgroup/real.slice")
	assert.ErrorIs(t, err, os.ErrNotExist)
}

// systemd re-executes itself and the bus restarts while slices are started and stopped.
func testRealOutage(t *testing.T, client *systemd.Client) {
	outage := make(chan struct{})
	t.Cleanup(func() { <-outage })
	go func() {
		defer close(outage)
		for _, args := range [][]string{{"daemon-reexec"}, {"restart", "dbus.service"}, {"daemon-reload"}, {"daemon-reexec"}} {
			out, err := exec.CommandContext(t.Context(), "systemctl", args...).CombinedOutput()
			assert.NoError(t, err, "systemctl %v: %s", args, out)
		}
	}()
	began, rounds := time.Now(), 0
	for over := false; !over; rounds++ {
		select {
		case <-outage:
			over = true
		default:
		}
		path := cgroups.Path(fmt.Sprintf("real%d", rounds))
		s := realSlice(t, path, cgroups.Resources{CPUShares: 1024})
		require.NoError(t, ensure(t, client, s))
		assert.Equal(t, "100", realFile(t, path, "cpu.weight"))
		require.NoError(t, client.Stop(t.Context(), s.Unit))
	}
	t.Logf("%d slices in %v of outages", rounds, time.Since(began))
}

// Stop removes a slice that systemd created for a child, and a loaded slice without its directory.
func testRealLeftovers(t *testing.T, client *systemd.Client) {
	limited := cgroups.Resources{CPUShares: 1024}
	require.NoError(t, ensure(t, client, realSlice(t, "real/child", limited)))
	require.NoError(t, ensure(t, client, realSlice(t, "real", limited)))
	eventuallyFile(t, "real", "cpu.weight", "100")

	require.NoError(t, os.Remove("/sys/fs/cgroup/real.slice/real-child.slice"))
	require.NoError(t, client.Stop(t.Context(), "real-child.slice"))
	require.NoError(t, client.Stop(t.Context(), "real-child.slice"))
	require.NoError(t, client.Stop(t.Context(), "real.slice"))
}

func testRealMany(t *testing.T, client *systemd.Client) {
	require.NoError(t, ensure(t, client, realSlice(t, "real", cgroups.Resources{})))
	began := time.Now()
	var pods sync.WaitGroup
	for i := range 100 {
		pods.Go(func() {
			path := cgroups.Path(fmt.Sprintf("real/pod%d", i))
			memory := int64(i+1) << 20
			s := realSlice(t, path, cgroups.Resources{CPUShares: uint64(i + 2), MemoryMax: &memory})
			if assert.NoError(t, ensure(t, client, s)) {
				assert.Equal(t, fmt.Sprint(memory), realFile(t, path, "memory.max"))
			}
			assert.NoError(t, client.Stop(t.Context(), s.Unit))
		})
	}
	pods.Wait()
	t.Logf("100 slices created and removed in %v", time.Since(began))
	left, err := filepath.Glob("/sys/fs/cgroup/real.slice/real-*")
	require.NoError(t, err)
	assert.Empty(t, left)
	require.NoError(t, client.Stop(t.Context(), "real.slice"))
}
