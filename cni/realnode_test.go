// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/cni/netns"
	"github.com/seed81659283/nodeagent/internal/lab"
)

// realNode is a node with the plugins of the CNI project. Its host is the network namespace of the tests.
type realNode struct {
	*node
	leases string // the directory with one file per used address
}

const bridge = `{"type":"bridge","bridge":"cnitest0","isGateway":true,"ipam":{"type":"host-local","dataDir":"LEASES","ranges":[%s]}}`

const (
	range4 = `[{"subnet":"10.213.0.0/16"}]`
	range6 = `[{"subnet":"fd00:213::/64"}]`
)

// newRealNode returns a node that runs real plugins in one network. In config, "LEASES" is replaced by the lease directory of the
// plugin host-local.
func newRealNode(t testing.TB, config string, plugins ...string) *realNode {
	needsRoot(t)
	dir := lab.PluginDir(t, plugins...)
	n := &realNode{node: newNode(t), leases: t.TempDir()}
	n.opts.PluginDirs = []string{dir}
	n.write("10-net.conflist", strings.ReplaceAll(config, "LEASES", n.leases))
	before := links(t)
	t.Cleanup(func() {
		if bridge, err := net.InterfaceByName("cnitest0"); err == nil {
			require.NoError(t, exec.Command("ip", "link", "delete", bridge.Name).Run())
		}
		require.Equal(t, before, links(t))
	})
	return n
}

// links returns the sorted names of the network interfaces of the host.
func links(t testing.TB) []string {
	t.Helper()
	all, err := net.Interfaces()
	require.NoError(t, err)
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return names
}

// requireNothingLeft fails the test if an address, interface, namespace or file of a sandbox remains. The bridge may remain.
func (n *realNode) requireNothingLeft() {
	n.t.Helper()
	n.requireNoFiles()
	require.Empty(n.t, n.addresses())
	require.Empty(n.t, slices.DeleteFunc(links(n.t), func(name string) bool { return !strings.HasPrefix(name, "veth") && !strings.HasPrefix(name, "bwp") }))
}

// addresses returns the lease files of the addresses that are in use.
func (n *realNode) addresses() []string {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.leases, "net", "*"))
	require.NoError(n.t, err)
	return slices.DeleteFunc(files, func(file string) bool {
		_, err := netip.ParseAddr(strings.ReplaceAll(filepath.Base(file), "_", ":"))
		return err != nil
	})
}

// command runs a program of the host and returns its output. It skips the test if the program is not installed.
func command(t testing.TB, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is missing", name)
	}
	out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

// listen accepts connections to a port of the pod until the test ends, and sends "hello" to each client.
func listen(t testing.TB, s *cni.PodStatus, ip netip.Addr, port uint16) {
	t.Helper()
	var l net.Listener
	require.NoError(t, netns.Do(s.Netns, func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(ip, port).String())
		return err
	}))
	var served sync.WaitGroup
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			c.Close()
		}
	})
	t.Cleanup(func() {
		l.Close()
		served.Wait()
	})
}

// hello connects to address and returns an error unless it receives "hello".
func hello(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	said, err := io.ReadAll(c)
	if err == nil && string(said) != "hello" {
		err = fmt.Errorf("received %q", said)
	}
	return err
}

// helloFrom calls hello in the network namespace of a pod, or in that of the host if s is nil.
func helloFrom(t testing.TB, s *cni.PodStatus, address string) {
	t.Helper()
	if s == nil {
		require.NoError(t, hello(address))
		return
	}
	require.NoError(t, netns.Do(s.Netns, func() error { return hello(address) }))
}

// bridged returns a configuration list with a bridge plugin, followed by the plugins in more.
func bridged(version, ranges string, more ...string) string {
	return list("net", version, append([]string{fmt.Sprintf(bridge, ranges)}, more...)...)
}
