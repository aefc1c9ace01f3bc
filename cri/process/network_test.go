// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process"
)

// sandboxOf returns the only sandbox of a runtime.
func sandboxOf(t *testing.T, rt *process.Runtime) cri.Sandbox {
	t.Helper()
	snapshot, err := rt.List(t.Context())
	require.NoError(t, err)
	require.Len(t, snapshot.Sandboxes, 1)
	return snapshot.Sandboxes[0]
}

func runPod(t *testing.T, rt *process.Runtime, c cri.SandboxConfig) string {
	t.Helper()
	c.Pod = cri.PodIdentity{UID: t.Name(), Name: "pod", Namespace: "test"}
	id, err := rt.RunSandbox(t.Context(), &c)
	require.NoError(t, err)
	return id
}

const netnsOf = "readlink /proc/self/ns/net"

// All processes of a sandbox are in its network, including those that a restarted agent starts.
func TestIntegrationNetwork(t *testing.T) {
	n := newNetwork(t)
	root, logs := t.TempDir(), t.TempDir()
	rt := openWith(t, root, process.Options{Network: n})
	sandbox := runPod(t, rt, cri.SandboxConfig{
		LogDirectory: logs, Hostname: "web-0", Sysctls: map[string]string{"net.ipv4.ip_local_port_range": "20000 20100"},
		Ports: []cri.PortMapping{{ContainerPort: 80, HostPort: 8080}},
	})
	s := sandboxOf(t, rt)
	require.Equal(t, []string{"10.0.0.1"}, s.IPs)
	require.Equal(t, cri.NamespacePod, s.Namespaces.Network)
	host, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	c := shellConfig("exec sleep 1000")
	id := startContainer(t, rt, sandbox, c)
	own := execScript(t, rt, id, netnsOf)
	require.NotEqual(t, host+"\n", own)
	require.Equal(t, own, runToExit(t, rt, sandbox, logs, shellConfig(netnsOf)))
	require.Equal(t, "web-0\n20000\t20100\n", execScript(t, rt, id, "uname -n; cat /proc/sys/net/ipv4/ip_local_port_range"))
	name, err := os.Hostname()
	require.NoError(t, err)
	require.NotEqual(t, "web-0", name)

	require.NoError(t, rt.Close())
	rt = openWith(t, root, process.Options{Network: n})
	require.Equal(t, []string{"10.0.0.1"}, sandboxOf(t, rt).IPs)
	require.Equal(t, own, execScript(t, rt, id, netnsOf))
	require.Equal(t, own, runToExit(t, rt, sandbox, logs, shellConfig(netnsOf)))

	require.NoError(t, rt.StopSandbox(t.Context(), sandbox))
	s = sandboxOf(t, rt)
	require.Equal(t, cri.SandboxNotReady, s.State)
	require.Empty(t, s.IPs)
	require.False(t, n.spaces.Pinned(sandbox))
}

func TestIntegrationNetworkOfHost(t *testing.T) {
	n := newNetwork(t)
	rt := openWith(t, t.TempDir(), process.Options{Network: n})
	c := cri.SandboxConfig{LogDirectory: t.TempDir()}
	c.Security.Namespaces.Network = cri.NamespaceNode
	sandbox := runPod(t, rt, c)
	require.Empty(t, sandboxOf(t, rt).IPs)
	require.Equal(t, cri.NamespaceNode, sandboxOf(t, rt).Namespaces.Network)
	host, err := os.Readlink("/proc/self/ns/net")
	require.NoError(t, err)
	require.Equal(t, host+"\n", runToExit(t, rt, sandbox, c.LogDirectory, shellConfig(netnsOf)))
	c.Pod.UID, c.Ports = "other", []cri.PortMapping{{ContainerPort: 80, HostPort: 8080}}
	c.Sysctls = map[string]string{"net.ipv4.ip_forward": "1"}
	_, err = rt.RunSandbox(t.Context(), &c)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "net.ipv4.ip_forward=1")
	require.ErrorContains(t, err, "host_port 8080")
}

// Sysctls outside the network namespace stay unchanged on the host.
func TestIntegrationSysctls(t *testing.T) {
	rt := openWith(t, t.TempDir(), process.Options{Network: newNetwork(t)})
	for _, name := range []string{"kernel.shm_rmid_forced", "net/../kernel/hostname", "net...kernel.hostname"} {
		_, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Sysctls: map[string]string{name: "1"}})
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, name+"=1")
	}
	sandbox := runPod(t, rt, cri.SandboxConfig{LogDirectory: t.TempDir(), Sysctls: map[string]string{"net.absent": "1"}})
	id, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c", Command: []string{"true"}}, nil)
	require.NoError(t, err)
	require.ErrorContains(t, rt.StartContainer(t.Context(), id), `set sysctl net.absent to "1"`)
}

// IgnoreUnsupported ignores sysctls that would change the host: none is written. The names here do not exist, so that a
// container whose shim writes one fails to start, and the host of this test stays unchanged.
func TestIntegrationIgnoredSysctls(t *testing.T) {
	rt := openWith(t, t.TempDir(), process.Options{Network: newNetwork(t), IgnoreUnsupported: true})
	c := cri.SandboxConfig{LogDirectory: t.TempDir(), Sysctls: map[string]string{
		"kernel.absent": "1", "kernel.shm_absent": "1", "net/../kernel/absent": "1", "net...kernel.absent": "1", "vm.absent": "1", "": "1",
		"net.ipv4.ip_local_port_range": "20000 20100",
	}}
	sandbox := runPod(t, rt, c)
	require.Equal(t, "20000\t20100\n", runToExit(t, rt, sandbox, c.LogDirectory, shellConfig("cat /proc/sys/net/ipv4/ip_local_port_range")))
}

func TestIntegrationNetworkFails(t *testing.T) {
	n := newNetwork(t)
	rt := openWith(t, t.TempDir(), process.Options{Network: n})
	c := &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "u", Name: "pod", Namespace: "test"}}
	n.setup = errors.New("no address")
	_, err := rt.RunSandbox(t.Context(), c)
	require.ErrorIs(t, err, n.setup)
	require.EqualError(t, err, "RunPodSandbox pod: set up network: no address")
	snapshot, err := rt.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, snapshot.Sandboxes)

	n.setup = nil
	sandbox, err := rt.RunSandbox(t.Context(), c) // the name of the failed sandbox is free
	require.NoError(t, err)
	n.teardown = errors.New("plugin hangs")
	require.ErrorContains(t, rt.StopSandbox(t.Context(), sandbox), "tear down network: plugin hangs")
	require.Equal(t, cri.SandboxReady, sandboxOf(t, rt).State, "the sandbox stays ready after a failed teardown")
	require.NoError(t, rt.StopSandbox(t.Context(), sandbox))

	n.ready = errors.New("no CNI network is configured")
	status, err := rt.Status(t.Context())
	require.NoError(t, err)
	condition, _ := status.Condition(cri.ConditionNetworkReady)
	require.Equal(t, cri.Condition{Type: cri.ConditionNetworkReady, Reason: "NetworkPluginNotReady", Message: n.ready.Error()}, condition)
	condition, _ = status.Condition(cri.ConditionRuntimeReady)
	require.True(t, condition.Status)
}

// Networks of an agent that was killed between network setup and record are torn down; networks in use are kept.
func TestIntegrationRetainTearsDownOrphanedNetworks(t *testing.T) {
	n := newNetwork(t)
	root := t.TempDir()
	rt := openWith(t, root, process.Options{Network: n})
	kept := runPod(t, rt, cri.SandboxConfig{})
	require.NoError(t, rt.Close())
	_, err := n.spaces.Create("left")
	require.NoError(t, err)
	n.retained, n.retain = nil, errors.New("not now")

	rt = openWith(t, root, process.Options{Network: n})
	var ids []string
	for _, uid := range []string{"a", "b", "c"} {
		id, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: uid, Name: uid}})
		require.NoError(t, err)
		ids = append(ids, id)
	}
	require.Len(t, n.retained, 2, "Retain is repeated after an error, and not after a success")
	require.ElementsMatch(t, []string{kept, ids[0]}, n.retained[0])
	require.ElementsMatch(t, []string{kept, ids[0], ids[1]}, n.retained[1])
	require.False(t, n.spaces.Pinned("left"))
	for _, id := range append(ids, kept) {
		require.True(t, n.spaces.Pinned(id))
	}
}

// waitingNetwork is a network whose Retain blocks.
type waitingNetwork struct {
	*network
	begun, goOn chan struct{}
}

func (w waitingNetwork) Retain(ctx context.Context, ids []string) error {
	w.begun <- struct{}{}
	<-w.goOn
	return w.network.Retain(ctx, ids)
}

// A sandbox that arrives during Retain, whose list does not contain it, is set up afterwards.
func TestIntegrationNetworkWaitsForRetain(t *testing.T) {
	for name, retain := range map[string]error{"succeeds": nil, "fails": errors.New("not now")} {
		t.Run(name, func(t *testing.T) {
			w := waitingNetwork{newNetwork(t), make(chan struct{}, 9), make(chan struct{})}
			w.retain = retain
			rt := openWith(t, t.TempDir(), process.Options{Network: w})
			ids := make(chan string)
			run := func(uid string) {
				id, err := rt.RunSandbox(t.Context(), &cri.SandboxConfig{Pod: cri.PodIdentity{UID: uid, Name: uid}})
				assert.NoError(t, err)
				ids <- id
			}
			go run("a")
			<-w.begun
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := rt.RunSandbox(ctx, &cri.SandboxConfig{Pod: cri.PodIdentity{UID: "b", Name: "b"}})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			names, err := w.spaces.Names()
			require.NoError(t, err)
			require.Empty(t, names, "no network is set up during Retain")
			go run("c")
			time.Sleep(20 * time.Millisecond) // time in which the call probably arrives
			close(w.goOn)
			require.True(t, w.spaces.Pinned(<-ids))
			require.True(t, w.spaces.Pinned(<-ids))
		})
	}
}

// After a reboot no namespace exists. The sandbox is not ready, and StopSandbox tears down its network, for the files of the
// network plugins.
func TestIntegrationNetworkAfterReboot(t *testing.T) {
	n := newNetwork(t)
	root := t.TempDir()
	rt := openWith(t, root, process.Options{Network: n})
	sandbox := runPod(t, rt, cri.SandboxConfig{})
	require.NoError(t, rt.Close())
	require.NoError(t, n.spaces.Remove(sandbox))

	rt = openWith(t, root, process.Options{Network: n})
	require.Equal(t, cri.SandboxNotReady, sandboxOf(t, rt).State)
	_, err := rt.CreateContainer(t.Context(), sandbox, &cri.ContainerConfig{Name: "c", Command: []string{"true"}}, nil)
	require.ErrorContains(t, err, "not ready")
	n.teardown = errors.New("lease is kept")
	require.ErrorContains(t, rt.StopSandbox(t.Context(), sandbox), "tear down network: lease is kept")
	require.NoError(t, rt.StopSandbox(t.Context(), sandbox))
	n.teardown = errors.New("there is nothing to tear down any more")
	require.NoError(t, rt.RemoveSandbox(t.Context(), sandbox))
	n.teardown = nil
}

// A runtime that is opened without the network of its sandboxes returns an error instead of losing the network.
func TestIntegrationStopFailsWithoutNetworkOption(t *testing.T) {
	n := newNetwork(t)
	root := t.TempDir()
	rt := openWith(t, root, process.Options{Network: n})
	sandbox := runPod(t, rt, cri.SandboxConfig{})
	require.NoError(t, rt.Close())
	without, err := process.Open(root, process.Options{})
	require.NoError(t, err)
	require.ErrorContains(t, without.StopSandbox(t.Context(), sandbox), "Options.Network is nil: open the runtime with the one")
	require.NoError(t, without.Close())
	rt = openWith(t, root, process.Options{Network: n})
	assert.NoError(t, rt.StopSandbox(t.Context(), sandbox))
}
