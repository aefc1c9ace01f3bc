// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestFirstFieldReadsWhatProtobufWrites(t *testing.T) {
	msg, err := proto.Marshal(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{
		{Id: "a", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 1 << 40, Labels: map[string]string{"k": "v"}},
		{Id: "b"},
	}})
	require.NoError(t, err)
	items, err := firstField(msg)
	require.NoError(t, err)
	require.Len(t, items, 2)
	id, err := firstField(items[0])
	require.NoError(t, err)
	assert.Equal(t, [][]byte{[]byte("a")}, id)
}

// FuzzFirstField checks that firstField finds as many items as protobuf in each valid message, and does not panic.
func FuzzFirstField(f *testing.F) {
	f.Add([]byte("\x0a\x03\x0a\x01a"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		items, err := firstField(msg)
		var want runtimeapi.ListPodSandboxResponse
		if proto.Unmarshal(msg, &want) != nil {
			return
		}
		if err == nil && len(items) != len(want.GetItems()) {
			t.Fatalf("%d items, protobuf has %d", len(items), len(want.GetItems()))
		}
	})
}

func TestPickSubnetAvoidsAddressesInUse(t *testing.T) {
	free, err := pickSubnet("00000005", nil)
	require.NoError(t, err)
	assert.Equal(t, "10.0.20.0/22", free.String())

	used := []net.Addr{
		&net.IPNet{IP: net.IPv4(10, 0, 23, 7), Mask: net.CIDRMask(32, 32)},
		&net.IPNet{IP: net.IPv4(10, 0, 24, 1), Mask: net.CIDRMask(22, 32)},
		&net.IPNet{IP: net.ParseIP("fe80::1"), Mask: net.CIDRMask(64, 128)},
	}
	next, err := pickSubnet("00000005", used)
	require.NoError(t, err)
	assert.Equal(t, "10.0.28.0/22", next.String())

	_, err = pickSubnet("00000005", []net.Addr{&net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(8, 32)}})
	require.Error(t, err, "no subnet is free on a machine in 10.0.0.0/8")
}

func TestProcessIsNotMistakenForAnother(t *testing.T) {
	if reason := unsupportedReason(); reason != "" {
		t.Skip(reason)
	}
	start, ok := processStart(os.Getpid())
	require.True(t, ok)
	assert.True(t, process{os.Getpid(), start}.isAlive())
	reused := process{os.Getpid(), start + 1}
	assert.False(t, reused.isAlive())
	require.NoError(t, reused.killProcess(t.Context()), "killProcess does not kill a process that reuses the PID")
}

func TestStopKillsAfterTheGrace(t *testing.T) {
	if reason := unsupportedReason(); reason != "" {
		t.Skip(reason)
	}
	log := t.TempDir() + "/log"
	p, err := startProcess(log, "/", "/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		b, _ := os.ReadFile(log)
		return len(b) > 0
	}, time.Minute, 10*time.Millisecond)
	require.NoError(t, p.stopProcess(t.Context(), 50*time.Millisecond))
	assert.False(t, p.isAlive())
}

// TestExclusiveLockWaitsForSharedOnes ensures that a lab is not stopped while it is in use.
func TestExclusiveLockWaitsForSharedOnes(t *testing.T) {
	if reason := unsupportedReason(); reason != "" {
		t.Skip(reason)
	}
	home := t.TempDir()
	first, err := useLock(t.Context(), home, "x", true)
	require.NoError(t, err)
	second, err := useLock(t.Context(), home, "x", true)
	require.NoError(t, err)
	_, err = tryAcquireLock(usePath(home, "x"), false)
	require.ErrorIs(t, err, errLocked)
	require.NoError(t, first.Close())
	_, err = tryAcquireLock(usePath(home, "x"), false)
	require.ErrorIs(t, err, errLocked)
	require.NoError(t, second.Close())
	last, err := tryAcquireLock(usePath(home, "x"), false)
	require.NoError(t, err)
	require.NoError(t, last.Close())
}

// The programs of a checkout may be links to programs of another checkout. Processes that run from a link are found.
func TestProcessesOfALink(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found in /proc")
	}
	program, err := exec.LookPath("sleep")
	require.NoError(t, err)
	link := filepath.Join(t.TempDir(), "tool")
	require.NoError(t, os.Symlink(program, link))
	cmd := exec.Command(link, "1234.5")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	require.Eventually(t, func() bool { return len(findProcesses(link, "1234.5")) == 1 }, time.Minute, 10*time.Millisecond)
	require.Empty(t, findProcesses(link, "1234.6"), "a process with another argument is not found")
}
