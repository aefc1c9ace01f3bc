// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package process_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed81659283/nodeagent/cgroups"
	"github.com/seed81659283/nodeagent/cgroups/driver"
	"github.com/seed81659283/nodeagent/cni/netns"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/internal/isolated"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getenv(isolated.Inside) == "" {
		t.Skip("namespaces and cgroups require root")
	}
}

// network creates network namespaces with only a loopback interface. The addresses are invented.
type network struct {
	spaces *netns.Dir

	mu       sync.Mutex // guards the fields below
	last     uint32
	retained [][]string
	ready    error // error of Ready
	setup    error // error of Setup
	teardown error // error of the next Teardown
	retain   error // error of the next Retain
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	needRoot(t)
	dir := filepath.Join(t.TempDir(), "netns")
	n := &network{spaces: netns.New(dir)}
	t.Cleanup(func() {
		names, err := n.spaces.Names()
		assert.NoError(t, err)
		assert.Empty(t, names, "no network namespace is left")
		for unix.Unmount(dir, unix.MNT_DETACH) == nil {
		}
	})
	return n
}

func (n *network) Setup(_ context.Context, id string, _ *cri.SandboxConfig) (process.SandboxNetwork, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.setup != nil {
		return process.SandboxNetwork{}, n.setup
	}
	path, err := n.spaces.Create(id)
	n.last++
	address := binary.BigEndian.AppendUint32(nil, 10<<24+n.last)
	ip, _ := netip.AddrFromSlice(address)
	return process.SandboxNetwork{Netns: path, IPs: []netip.Addr{ip}}, err
}

func (n *network) Teardown(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.teardown; err != nil {
		n.teardown = nil
		return err
	}
	return n.spaces.Remove(id)
}

func (n *network) Retain(_ context.Context, ids []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.retained = append(n.retained, ids)
	if err := n.retain; err != nil {
		n.retain = nil
		return err
	}
	names, err := n.spaces.Names()
	for _, name := range names {
		if !slices.Contains(ids, name) {
			err = errors.Join(err, n.spaces.Remove(name))
		}
	}
	return err
}

func (n *network) Ready(context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ready
}

// newCgroups returns a driver for a cgroup of the test, which is removed with its content.
func newCgroups(t testing.TB) *driver.Driver {
	t.Helper()
	needRoot(t)
	host, err := driver.Open(t.Context(), driver.Options{})
	if err != nil {
		t.Skip("no cgroups: ", err)
	}
	root := cgroups.Path(fmt.Sprintf("nodeagent-process-%d-%d", os.Getpid(), time.Now().UnixNano()))
	require.NoError(t, host.Apply(t.Context(), root, cgroups.Resources{}))
	d, err := driver.Open(t.Context(), driver.Options{Root: root.Cgroupfs()})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, d.Close())
		assert.NoError(t, host.Remove(context.Background(), root))
		assert.NoError(t, host.Close())
	})
	return d
}

// openWith is openRuntime with options.
func openWith(t testing.TB, root string, o process.Options) *process.Runtime {
	t.Helper()
	rt, err := process.Open(root, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if snapshot, err := rt.List(ctx); err == nil { // List fails if the test has closed the runtime
			for _, s := range snapshot.Sandboxes {
				assert.NoError(t, rt.RemoveSandbox(ctx, s.ID))
			}
		}
		rt.Close()
	})
	return rt
}

// runToExit runs a container until it exits and returns its log without times.
func runToExit(t *testing.T, rt *process.Runtime, sandbox, logs string, c cri.ContainerConfig) string {
	t.Helper()
	c.Name = fmt.Sprint("run", time.Now().UnixNano())
	id := startContainer(t, rt, sandbox, c)
	ended := awaitExit(t, rt, id)
	data, err := os.ReadFile(filepath.Join(logs, c.Name+".log"))
	require.NoError(t, err)
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		_, line, _ = strings.Cut(line, " F ")
		text.WriteString(line)
	}
	require.Zero(t, ended.ExitCode, "%s: %s", ended.Message, &text)
	return text.String()
}

// execScript runs a script beside a container with ExecSync.
func execScript(t *testing.T, rt *process.Runtime, id, script string) string {
	t.Helper()
	result, err := rt.ExecSync(t.Context(), id, []string{"sh", "-c", script}, 10*time.Second)
	require.NoError(t, err)
	require.Zero(t, result.ExitCode, string(result.Stderr))
	return string(result.Stdout)
}

// With all isolation options, the runtime passes the conformance suite.
func TestIntegrationRuntimeIsolated(t *testing.T) {
	d := newCgroups(t)
	var networks, roots sync.Map // networks by state directory, and state directories by runtime, because cases run in parallel
	open := func(t *testing.T, root string) cri.Runtime {
		n, ok := networks.Load(root)
		if !ok {
			n, _ = networks.LoadOrStore(root, newNetwork(t))
		}
		rt := openWith(t, root, process.Options{Network: n.(*network), Mounts: true, Cgroups: d})
		roots.Store(cri.Runtime(rt), root)
		return rt
	}
	t.Run("suite", func(t *testing.T) { // the group ends before the shared options are closed
		critest.TestRuntime(t, critest.Fixture{
			New: func(t *testing.T) cri.Runtime { return open(t, t.TempDir()) },
			Reopen: func(t *testing.T, rt cri.Runtime) cri.Runtime {
				require.NoError(t, rt.(*process.Runtime).Close())
				root, _ := roots.Load(rt)
				return open(t, root.(string))
			},
			Logs:            true,
			IsolatedNetwork: true,
			Adjust: func(_ *cri.SandboxConfig, c *cri.ContainerConfig) {
				if c != nil {
					c.Mounts = append(c.Mounts, cri.Mount{HostPath: "/etc", ContainerPath: "/nodeagent-test/etc", ReadOnly: true})
					c.Resources = &cri.Resources{CPUShares: 512, MemoryLimit: 256 << 20}
				}
			},
		})
	})
}
