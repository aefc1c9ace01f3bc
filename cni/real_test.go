// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/cni/netns"
)

func TestIntegrationPackets(t *testing.T) {
	n := newRealNode(t, bridged("1.1.0", range4+","+range6), "bridge", "host-local")
	p := n.open()
	require.NoError(t, p.Ready(t.Context()))
	one, err := p.Setup(t.Context(), pod("1"))
	require.NoError(t, err)
	two, err := p.Setup(t.Context(), pod("2"))
	require.NoError(t, err)
	require.Len(t, one.IPs, 2)
	require.True(t, one.IPs[0].Is4())
	require.True(t, one.IPs[1].Is6())
	require.Len(t, n.addresses(), 4)
	for _, ip := range one.IPs {
		listen(t, one, ip, 80)
		address := netip.AddrPortFrom(ip, 80).String()
		helloFrom(t, two, address)
		helloFrom(t, one, address)
	}
	helloFrom(t, nil, netip.AddrPortFrom(one.IPs[0], 80).String())
	loopback := netip.MustParseAddr("127.0.0.1")
	listen(t, two, loopback, 81)
	helloFrom(t, two, "127.0.0.1:81")

	require.NoError(t, p.Check(t.Context(), "1"))
	require.NoError(t, netns.Do(one.Netns, func() error {
		return exec.CommandContext(t.Context(), "ip", "address", "flush", "dev", "eth0").Run()
	}))
	require.Error(t, p.Check(t.Context(), "1"), "CHECK fails after the address was removed")
	require.NoError(t, p.Teardown(t.Context(), "1"))
	require.NoError(t, p.Teardown(t.Context(), "2"))
	n.requireNothingLeft()
}

func TestIntegrationPortMapping(t *testing.T) {
	n := newRealNode(t, bridged("1.0.0", range4, plugin("portmap", cni.CapPortMappings)), "bridge", "host-local", "portmap")
	command(t, "iptables", "--list", "--table=nat") // skips the test without iptables, which the plugin needs
	command(t, "ip", "link", "set", "lo", "up")
	p := n.open()
	web := pod("1")
	web.Ports = []cni.PortMapping{{HostPort: 8080, ContainerPort: 80}}
	s, err := p.Setup(t.Context(), web)
	require.NoError(t, err)
	listen(t, s, s.IPs[0], 80)
	gateway := s.Networks[0].Result.IPs[0].Gateway
	helloFrom(t, nil, netip.AddrPortFrom(gateway, 8080).String())
	client, err := p.Setup(t.Context(), pod("2"))
	require.NoError(t, err)
	helloFrom(t, client, netip.AddrPortFrom(gateway, 8080).String())
	require.NoError(t, p.Teardown(t.Context(), "2"))
	require.NoError(t, p.Teardown(t.Context(), "1"))
	require.NotContains(t, command(t, "iptables-save"), "8080")
	n.requireNothingLeft()
}

func TestIntegrationBandwidth(t *testing.T) {
	n := newRealNode(t, bridged("1.0.0", range4, plugin("bandwidth", cni.CapBandwidth)), "bridge", "host-local", "bandwidth")
	if out, err := exec.CommandContext(t.Context(), "ip", "link", "add", "cnitest1", "type", "ifb").CombinedOutput(); err != nil {
		t.Skipf("the kernel has no ifb: %s", out)
	}
	command(t, "ip", "link", "delete", "cnitest1")
	p := n.open()
	slow := pod("1")
	slow.Annotations = map[string]string{cni.AnnotationIngressBandwidth: "1M", cni.AnnotationEgressBandwidth: "2M"}
	_, err := p.Setup(t.Context(), slow)
	require.NoError(t, err)
	qdiscs := command(t, "tc", "qdisc", "show")
	require.Contains(t, qdiscs, "rate 1Mbit")
	require.Contains(t, qdiscs, "rate 2Mbit")
	require.NoError(t, p.Teardown(t.Context(), "1"))
	require.NotContains(t, command(t, "tc", "qdisc", "show"), "Mbit")
	n.requireNothingLeft()
}

// The remaining plugins, with their requirements on the host.
func TestIntegrationPlugins(t *testing.T) {
	const ipam = `"ipam":{"type":"host-local","dataDir":"LEASES","subnet":"10.213.0.0/16"}`
	for name, config := range map[string]string{
		"ptp":      list("net", "1.1.0", `{"type":"ptp",`+ipam+`}`),
		"macvlan":  list("net", "1.0.0", `{"type":"macvlan","master":"cnitest2",`+ipam+`}`),
		"static":   list("net", "1.0.0", `{"type":"ptp","ipam":{"type":"static","addresses":[{"address":"10.213.0.9/16","gateway":"10.213.0.1"}]}}`),
		"tuning":   bridged("1.0.0", range4, `{"type":"tuning","mtu":1400,"sysctl":{"net.core.somaxconn":"200"}}`),
		"firewall": bridged("1.0.0", range4, `{"type":"firewall","backend":"iptables"}`),
		"loopback": list("net", "1.0.0", `{"type":"ptp",`+ipam+`}`, `{"type":"loopback"}`),
	} {
		t.Run(name, func(t *testing.T) {
			n := newRealNode(t, config, "bridge", "host-local", "ptp", name)
			command(t, "ip", "link", "add", "cnitest2", "type", "veth", "peer", "name", "cnitest3")
			command(t, "ip", "link", "set", "cnitest2", "up")
			t.Cleanup(func() { _ = exec.Command("ip", "link", "delete", "cnitest2").Run() })
			p := n.open()
			s, err := p.Setup(t.Context(), pod("1"))
			if name == "macvlan" && err != nil && strings.Contains(err.Error(), "operation not supported") {
				t.Skip("the kernel has no macvlan")
			}
			require.NoError(t, err)
			require.NoError(t, p.Check(t.Context(), "1"))
			listen(t, s, s.IPs[0], 80)
			helloFrom(t, s, netip.AddrPortFrom(s.IPs[0], 80).String())
			require.NoError(t, p.Teardown(t.Context(), "1"))
			n.requireNothingLeft()
		})
	}
}

// Many pods are set up concurrently. Some outlive their agent, and the machine was rebooted for some.
func TestIntegrationManyPods(t *testing.T) {
	n := newRealNode(t, bridged("1.1.0", range4, plugin("portmap", cni.CapPortMappings)), "bridge", "host-local", "portmap")
	command(t, "iptables", "--list", "--table=nat")
	const pods, parallel = 50, 8
	p := n.open()
	each := func(count int, do func(id int) error) {
		t.Helper()
		var workers sync.WaitGroup
		errs := make([]error, count)
		for first := range parallel {
			workers.Go(func() {
				for id := first; id < count; id += parallel {
					errs[id] = do(id)
				}
			})
		}
		workers.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	setup := func(id int) error {
		one := pod(strconv.Itoa(id))
		one.Ports = []cni.PortMapping{{HostPort: int32(20000 + id), ContainerPort: 80}}
		_, err := p.Setup(t.Context(), one)
		return err
	}
	each(pods, setup)
	require.Len(t, n.addresses(), pods)
	each(pods, func(id int) error { return p.Teardown(t.Context(), strconv.Itoa(id)) })
	n.requireNothingLeft()

	each(16, setup)
	require.NoError(t, p.Close())
	for id := range 6 { // as after a reboot, for some sandboxes
		require.NoError(t, netns.New(n.opts.NetnsDir).Remove(strconv.Itoa(id)))
	}
	n.write("10-net.conflist", list("other", "1.0.0", plugin("bridge")))
	p = n.open()
	require.NoError(t, p.Retain(t.Context(), []string{"15"}))
	require.Len(t, n.addresses(), 1)
	require.Equal(t, map[string][]string{"netns": {"15"}, "record": {"15.json"}, "result": {"net-15-eth0"}}, n.files())
	require.NoError(t, p.Teardown(t.Context(), "15"))
	n.requireNothingLeft()
	require.NotContains(t, command(t, "iptables-save"), "--dport 20")
}
