// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd"
	"github.com/seed81659283/nodeagent/cgroups/driver/internal/systemd/systemdtest"
)

// start returns a fake systemd on its private socket, and a client whose timeouts are long enough for busy machines.
func start(t *testing.T) (*systemdtest.Systemd, *systemd.Client) {
	t.Helper()
	return startWith(t, false, systemd.Options{})
}

func startWith(t *testing.T, bus bool, o systemd.Options) (*systemdtest.Systemd, *systemd.Client) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	server, err := systemdtest.Start(path, bus)
	require.NoError(t, err)
	t.Cleanup(server.Close)
	o.Sockets = []systemd.Socket{{Path: path, Bus: bus}}
	client := systemd.New(o)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return server, client
}

// burstable is a slice with a memory limit.
func burstable(t *testing.T, memory int64) systemd.Slice {
	t.Helper()
	props, _, err := systemd.Properties(cgroups.Resources{CPUShares: 1024, MemoryMax: &memory}, false, cgroups.WeightLogQuadratic)
	require.NoError(t, err)
	return systemd.Slice{
		Unit: "kubepods-burstable.slice", Parent: "kubepods.slice", Description: "kubepods/burstable", Properties: props,
	}
}

const (
	startBurstable = "StartTransientUnit kubepods-burstable.slice replace CPUAccounting=true CPUWeight=100 " +
		"CollectMode=inactive-or-failed DefaultDependencies=false Description=kubepods/burstable IOAccounting=true " +
		"MemoryAccounting=true MemoryMax=1000 TasksAccounting=true Wants=[kubepods.slice]"
	setBurstable   = "SetUnitProperties kubepods-burstable.slice true MemoryMax=2000"
	stopBurstable  = "StopUnit kubepods-burstable.slice replace"
	resetBurstable = "ResetFailedUnit kubepods-burstable.slice"
)

// A new slice takes one call. Repeating Ensure returns UnitExists and reads the unit. A change sets only properties that differ.
func TestEnsureAndStopOfSlice(t *testing.T) {
	for name, bus := range map[string]bool{"message bus": true, "own socket": false} {
		t.Run(name, func(t *testing.T) {
			server, client := startWith(t, bus, systemd.Options{})

			require.NoError(t, ensure(t, client, burstable(t, 1000)))
			assert.Equal(t, []string{startBurstable}, server.Calls())
			assert.Equal(t, "active", server.Unit("kubepods-burstable.slice").State)

			require.NoError(t, ensure(t, client, burstable(t, 1000)))
			assert.Equal(t, []string{startBurstable}, server.Calls(), "no property is set without a difference")

			require.NoError(t, ensure(t, client, burstable(t, 2000)))
			assert.Equal(t, setBurstable, server.Calls()[1])
			assert.Equal(t, uint64(2000), server.Unit("kubepods-burstable.slice").Properties["MemoryMax"].Value())

			require.NoError(t, client.Stop(t.Context(), "kubepods-burstable.slice"))
			assert.Equal(t, []string{stopBurstable, resetBurstable}, server.Calls())
			assert.Empty(t, server.Unit("kubepods-burstable.slice").State)
		})
	}
}

func ensure(t *testing.T, client *systemd.Client, s systemd.Slice) error {
	t.Helper()
	_, err := client.Ensure(t.Context(), s)
	return err
}

// Ensure reports whether it started the slice, so that the caller can check its directory.
func TestEnsureReportsWhetherItStarted(t *testing.T) {
	_, client := start(t)
	started, err := client.Ensure(t.Context(), burstable(t, 1000))
	require.NoError(t, err)
	assert.True(t, started)
	started, err = client.Ensure(t.Context(), burstable(t, 2000))
	require.NoError(t, err)
	assert.False(t, started)
}

// A unit that exists in any state runs with the requested properties afterwards.
func TestEnsureStartsExistingUnitInAnyState(t *testing.T) {
	for _, state := range []string{"active", "inactive", "failed", "activating", "deactivating"} {
		t.Run(state, func(t *testing.T) {
			server, client := start(t)
			server.SetUnit("kubepods-burstable.slice", systemdtest.Unit{
				State: state, Properties: map[string]dbus.Variant{"MemoryMax": dbus.MakeVariant(uint64(5))},
			})
			require.NoError(t, ensure(t, client, burstable(t, 1000)))
			u := server.Unit("kubepods-burstable.slice")
			assert.Equal(t, "active", u.State)
			assert.Equal(t, uint64(1000), u.Properties["MemoryMax"].Value())
		})
	}
}

// Stop resets a failed slice. Stop of an unknown slice is a success.
func TestStopUnloadsFailedAndUnknownUnits(t *testing.T) {
	server, client := start(t)
	require.NoError(t, client.Stop(t.Context(), "kubepods.slice"))

	server.SetUnit("kubepods.slice", systemdtest.Unit{State: "active"})
	server.Inject("StopUnit", systemdtest.Failed)
	require.ErrorContains(t, client.Stop(t.Context(), "kubepods.slice"), "stop unit kubepods.slice: job ended: failed")
	require.NoError(t, client.Stop(t.Context(), "kubepods.slice"))
	assert.Empty(t, server.Unit("kubepods.slice").State)
}

// An old systemd would reject the whole unit because of an unknown property.
func TestEnsureOmitsPropertiesForOldVersions(t *testing.T) {
	memory := int64(1000)
	props, _, err := systemd.Properties(cgroups.Resources{
		CPUQuota: 50_000, CpusetCPUs: "0-1", MemoryMin: &memory, MemoryMax: &memory,
	}, false, cgroups.WeightLogQuadratic)
	require.NoError(t, err)
	for version, want := range map[string]string{
		"239 (239-82.el8)": "CPUQuotaPerSecUSec MemoryMax",
		"v241":             "CPUQuotaPerSecUSec MemoryMax MemoryMin",
		"243~rc1":          "CPUQuotaPerSecUSec CPUQuotaPeriodUSec MemoryMax MemoryMin",
		"v245.4-1.fc32":    "AllowedCPUs CPUQuotaPerSecUSec CPUQuotaPeriodUSec MemoryMax MemoryMin",
	} {
		server, client := start(t)
		server.SetVersion(version)
		require.NoError(t, ensure(t, client, systemd.Slice{Unit: "a.slice", Parent: "-.slice", Properties: props}))
		got := ""
		for _, name := range []string{"AllowedCPUs", "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", "MemoryMax", "MemoryMin"} {
			if _, ok := server.Unit("a.slice").Properties[name]; ok {
				got += " " + name
			}
		}
		assert.Equal(t, " "+want, got, version)
	}
}

// The client uses the first socket on which systemd replies. It skips a socket without listener and a bus without systemd.
func TestConnectUsesFirstSocketThatReplies(t *testing.T) {
	dir := t.TempDir()
	bus, err := systemdtest.Start(filepath.Join(dir, "bus"), true)
	require.NoError(t, err)
	t.Cleanup(bus.Close)
	bus.Inject("Get", systemdtest.Denied)
	own, err := systemdtest.Start(filepath.Join(dir, "own"), false)
	require.NoError(t, err)
	t.Cleanup(own.Close)
	own.SetVersion("251")

	client := systemd.New(systemd.Options{Sockets: []systemd.Socket{
		{Path: filepath.Join(dir, "none"), Bus: true}, {Path: filepath.Join(dir, "bus"), Bus: true}, {Path: filepath.Join(dir, "own")},
	}})
	defer client.Close()
	version, err := client.Version(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 251, version)
}

// A bus that hangs does not block the use of systemd's private socket.
func TestConnectSkipsSocketThatHangs(t *testing.T) {
	dir := t.TempDir()
	bus, err := systemdtest.Start(filepath.Join(dir, "bus"), true)
	require.NoError(t, err)
	t.Cleanup(bus.Close)
	bus.Inject("Auth", systemdtest.Hang)
	own, err := systemdtest.Start(filepath.Join(dir, "own"), false)
	require.NoError(t, err)
	t.Cleanup(own.Close)

	client := systemd.New(systemd.Options{CallTimeout: 6 * time.Second, Sockets: []systemd.Socket{
		{Path: filepath.Join(dir, "bus"), Bus: true}, {Path: filepath.Join(dir, "own")},
	}})
	defer client.Close()
	require.NoError(t, ensure(t, client, burstable(t, 1000)))
	assert.Equal(t, "active", own.Unit("kubepods-burstable.slice").State)
}

func TestVersionFailsWithoutSystemd(t *testing.T) {
	dir := t.TempDir()
	client := systemd.New(systemd.Options{Sockets: []systemd.Socket{
		{Path: filepath.Join(dir, "bus"), Bus: true}, {Path: filepath.Join(dir, "own")},
	}})
	defer client.Close()
	_, err := client.Version(t.Context())
	require.ErrorContains(t, err, "connect to systemd: "+dir+"/bus: ")
	assert.ErrorContains(t, err, "; "+dir+"/own: ")
	assert.NotContains(t, err.Error(), "\n")
}

func TestCallsFailAfterClose(t *testing.T) {
	server, client := startWith(t, false, systemd.Options{})
	require.NoError(t, ensure(t, client, burstable(t, 1000)))

	server.Inject("StopUnit", systemdtest.JobHangs)
	stopped := make(chan error)
	go func() { stopped <- client.Stop(t.Context(), "kubepods-burstable.slice") }()
	require.Eventually(t, func() bool { return server.Unit("kubepods-burstable.slice").Job != 0 }, time.Minute, time.Millisecond)
	require.NoError(t, client.Close())
	require.NoError(t, client.Close())
	assert.ErrorIs(t, <-stopped, net.ErrClosed, "Close ends the wait for a job")
	assert.ErrorIs(t, ensure(t, client, burstable(t, 1000)), net.ErrClosed)
}

// A hundred concurrent slices on one connection: each gets its own result.
func TestHundredConcurrentSlices(t *testing.T) {
	server, client := startWith(t, true, systemd.Options{})
	var pods sync.WaitGroup
	for i := range 100 {
		pods.Go(func() {
			unit := fmt.Sprintf("kubepods-pod%d.slice", i)
			assert.NoError(t, ensure(t, client, systemd.Slice{Unit: unit, Parent: "kubepods.slice"}))
			assert.NoError(t, client.Stop(t.Context(), unit))
		})
	}
	pods.Wait()
	assert.Len(t, server.Calls(), 300)
}
