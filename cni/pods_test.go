// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/internal/cnitest"
)

func TestIntegrationSetupAndTeardown(t *testing.T) {
	n := newNode(t)
	p := n.open()
	require.NoError(t, p.Ready(t.Context()))
	n.plugins.ClearCalls()
	s, err := p.Setup(t.Context(), pod("1"))
	require.NoError(t, err)
	require.Equal(t, filepath.Join(n.opts.NetnsDir, "1"), s.Netns)
	require.Len(t, s.IPs, 1)
	require.Equal(t, map[string][]string{"netns": {"1"}, "record": {"1.json"}, "result": {"net-1-eth0"}}, n.files())
	call := n.plugins.Calls()[0]
	require.Equal(t, "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod-1;K8S_POD_INFRA_CONTAINER_ID=1;K8S_POD_UID=uid-1", call.Args)
	require.Equal(t, s.Netns, call.Netns)
	require.Equal(t, "eth0", call.Interface)

	_, err = p.Setup(t.Context(), pod("1"))
	require.ErrorIs(t, err, fs.ErrExist)
	again, err := p.Inspect("1")
	require.NoError(t, err)
	require.Equal(t, s, again)
	require.NoError(t, p.Check(t.Context(), "1"))
	require.NoError(t, p.Teardown(t.Context(), "1"))
	require.NoError(t, p.Teardown(t.Context(), "1"), "again")
	n.requireNoFiles()
	_, err = p.Inspect("1")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, p.Check(t.Context(), "1"), fs.ErrNotExist)
	require.Equal(t, "a ADD, b ADD, c ADD, a CHECK, b CHECK, c CHECK, c DEL, b DEL, a DEL", n.plugins.CallNames())
}

func TestIntegrationSetupOfSeveralNetworks(t *testing.T) {
	n := newNode(t)
	n.write("20-two.conflist", list("two", "0.4.0", plugin("b")))
	n.opts.NetworkCount, n.opts.PreferFamily = 5, cni.IPv6
	n.plugins.Script("a", "ADD", cnitest.Return(`{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/8"},{"address":"fd00::2/64"}]}`))
	p := n.open()
	s, err := p.Setup(t.Context(), pod("1"))
	require.NoError(t, err)
	require.Len(t, s.Networks, 2)
	require.Equal(t, "eth1", s.Networks[1].Interface)
	require.Equal(t, "fd00::2", s.IPs[0].String(), "the addresses of the pod are those of its first network")
	require.Len(t, s.IPs, 2)
	require.NoError(t, p.Teardown(t.Context(), "1"))
	require.Equal(t, "a ADD, b ADD, c ADD, b ADD, b DEL, c DEL, b DEL, a DEL", n.plugins.CallNames())
	n.requireNoFiles()
}

// A failed set-up is undone with the configuration of its ADD, even if the context has ended or the files have changed.
func TestIntegrationFailedSetupIsUndone(t *testing.T) {
	for name, answer := range map[string]cnitest.Answer{
		"error": cnitest.Fail(11, "later"), "crash": cnitest.Crash(), "garbage": cnitest.Return("[]"), "hang": cnitest.Hang(cnitest.GroupChild),
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			p := n.open()
			n.plugins.Script("b", "ADD", answer)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			changed := make(chan struct{})
			go func() {
				defer close(changed)
				for answer.Hang && len(n.plugins.Calls()) < 2 {
					time.Sleep(time.Millisecond)
				}
				if answer.Hang {
					n.write("10-net.conflist", list("other", "1.1.0", plugin("c")))
					cancel()
				}
			}()
			_, err := p.Setup(ctx, pod("1"))
			<-changed
			require.ErrorContains(t, err, `set up network of pod default/pod-1: CNI ADD of network "net", interface eth0 of sandbox 1: `)
			require.Equal(t, "a ADD, b ADD, c DEL, b DEL, a DEL", n.plugins.CallNames())
			for _, c := range n.plugins.Calls("DEL") {
				require.Equal(t, `"net"`, c.Field("name"))
				require.NotEmpty(t, c.Netns)
			}
			n.requireNoFiles()
		})
	}
}

func TestIntegrationSetupRejectedBeforeAdd(t *testing.T) {
	n := newNode(t)
	p := n.open()
	n.plugins.Uninstall("b")
	_, err := p.Setup(t.Context(), pod("1"))
	require.ErrorContains(t, err, `failed to find plugin "b" in path [`+n.plugins.Dir+`]`)
	require.ErrorContains(t, p.Ready(t.Context()), `failed to find plugin "b"`)
	bad := pod("1")
	bad.Ports = []cni.PortMapping{{HostPort: 80, ContainerPort: 80, Protocol: "icmp"}}
	_, err = p.Setup(t.Context(), bad)
	require.ErrorContains(t, err, "set up network of pod default/pod-1: ports[0].protocol: ")
	n.write("10-net.conflist", "{")
	require.NoError(t, os.Chtimes(filepath.Join(n.opts.ConfDir, "10-net.conflist"), time.Unix(1, 0), time.Unix(1, 0)))
	_, err = p.Setup(t.Context(), pod("1"))
	require.ErrorIs(t, err, cni.ErrNoNetwork)
	require.ErrorContains(t, err, "no CNI network is configured in "+n.opts.ConfDir+"; "+n.opts.ConfDir+"/10-net.conflist: ")
	require.NoError(t, os.RemoveAll(n.opts.ConfDir))
	require.EqualError(t, p.Ready(t.Context()), "no CNI network is configured in "+n.opts.ConfDir)
	n.plugins.Install("b")
	n.write("10-net.conflist", list("net", "1.1.0", plugin("a"), plugin("b")))
	require.NoError(t, p.Ready(t.Context()), "the recreated directory is used")
	n.requireNoFiles()
	require.Empty(t, n.plugins.CallNames("ADD", "DEL"))

	n.plugins.Script("b", "ADD", cnitest.Return(`{"cniVersion":"1.1.0"}`))
	_, err = p.Setup(t.Context(), pod("1"))
	require.ErrorContains(t, err, `network "net" assigned no address to interface eth0`)
	n.requireNoFiles()
}

// A sandbox stays recorded until its teardown succeeds.
func TestIntegrationFailedTeardownIsRepeated(t *testing.T) {
	n := newNode(t)
	p := n.open()
	_, err := p.Setup(t.Context(), pod("1"))
	require.NoError(t, err)
	n.plugins.Script("b", "DEL", cnitest.Fail(11, "later"), cnitest.Succeed())
	require.ErrorContains(t, p.Teardown(t.Context(), "1"), `tear down network of sandbox 1: CNI DEL of network "net"`)
	require.NotEmpty(t, n.files()["netns"])
	require.NoError(t, p.Teardown(t.Context(), "1"))
	n.requireNoFiles()
	require.Equal(t, "c DEL, b DEL, c DEL, b DEL, a DEL", n.plugins.CallNames("DEL"))

	n.plugins.Script("a", "ADD", cnitest.Fail(11, "later"))
	n.plugins.Script("b", "DEL", cnitest.Fail(11, "later"))
	_, err = p.Setup(t.Context(), pod("2"))
	require.ErrorContains(t, err, "CNI DEL", "the error contains the failed DEL")
	n.plugins.Script("b", "DEL")
	require.NoError(t, p.Retain(t.Context(), nil))
	n.requireNoFiles()
}

// A hung plugin delays its pod, but no other pod and not Ready.
func TestIntegrationHungPluginDelaysOnlyItsPod(t *testing.T) {
	n := newNode(t)
	n.plugins.Script("b", "ADD", cnitest.Hang(cnitest.GroupChild), cnitest.Succeed())
	p := n.open()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := p.Setup(ctx, pod("1"))
		ended <- err
	}()
	for len(n.plugins.Calls()) < 2 {
		time.Sleep(time.Millisecond)
	}
	require.NoError(t, p.Ready(t.Context()))
	_, err := p.Setup(t.Context(), pod("2"))
	require.NoError(t, err)
	require.NoError(t, p.Retain(t.Context(), nil), "Retain must not tear down a sandbox that is being set up")
	require.Contains(t, n.plugins.Calls("GC")[0].Field("cni.dev/valid-attachments"), `"containerID":"1"`)
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	require.ErrorIs(t, p.Teardown(short, "1"), context.DeadlineExceeded, "Teardown waits for the set-up of its sandbox")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.NoError(t, p.Teardown(t.Context(), "2"))
	n.requireNoFiles()
}

func TestIntegrationReady(t *testing.T) {
	n := newNode(t)
	p := n.open()
	n.plugins.Script("b", "STATUS", cnitest.Fail(50, "no route"))
	err := p.Ready(t.Context())
	e, ok := errors.AsType[*cni.Error](err)
	require.True(t, ok)
	require.EqualValues(t, 50, e.Code)
	n.opts.Network = "other"
	require.NoError(t, p.Close())
	require.ErrorContains(t, n.open().Ready(t.Context()), `none is called "other" in `)
	n.write("50-bad.conf", "{")
	n.write("60-other.conflist", list("other", "1.0.0", plugin("a")))
	config := cni.NewDir(n.opts.ConfDir).Load()
	assert.Len(t, config.Networks, 2)
	assert.Len(t, config.Problems, 1)
}

func TestIntegrationCallsForOneSandboxAreSerialized(t *testing.T) {
	n := newNode(t)
	p := n.open()
	_, err := cni.Open(n.dir, n.opts)
	require.ErrorContains(t, err, "open CNI records: lock "+n.dir+": another agent has it open")
	_, err = cni.Open(filepath.Join(t.TempDir(), "other"), n.opts)
	require.ErrorContains(t, err, "open CNI records: lock "+n.opts.NetnsDir+": another agent has it open")
	require.NoError(t, p.Close())
	require.NoError(t, n.open().Close())
}
