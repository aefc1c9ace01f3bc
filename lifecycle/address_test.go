// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/critest"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podtest"
	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/podapi"
)

// The environment variables of a container on the host network have the address in the pod status.
func TestContainerVariablesHaveAddressOfStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var addresses []string
		rt := critest.New(critest.Options{Script: func(c *cri.ContainerConfig) critest.Script {
			mu.Lock()
			defer mu.Unlock()
			for _, v := range c.Env {
				if v.Name == "IPS" {
					addresses = append(addresses, v.Value)
				}
			}
			return critest.Script{}
		}})
		options := func(root string, ips ...string) lifecycle.Options {
			var addrs []netip.Addr
			for _, ip := range ips {
				addrs = append(addrs, netip.MustParseAddr(ip))
			}
			o := lifecycle.Options{Dirs: lifecycle.Dirs{Pods: root}}
			o.Spec.HostIPs = func() []netip.Addr { return addrs }
			return o
		}
		root := t.TempDir()
		pod := podtest.Pod("a")
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "IPS", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIPs"},
		}}}
		podapi.Default(pod)
		n := startAgent(t, rt, rt, options(root, "192.0.2.1"))
		n.set(pod)
		time.Sleep(time.Second)
		require.Equal(t, "192.0.2.1", n.status("a").PodIP)
		n.stop()

		n = startAgent(t, rt, rt, options(root, "192.0.2.2", "2001:db8::2")) // the address of the node has changed
		n.set(pod)
		time.Sleep(time.Second)
		require.NoError(t, rt.Kill("a/main", 1))
		time.Sleep(time.Minute)
		require.Equal(t, []corev1.PodIP{{IP: "192.0.2.1"}, {IP: "2001:db8::2"}}, n.status("a").PodIPs)

		require.NoError(t, rt.Kill("uid-a-0", 0)) // as after a reboot of the node
		time.Sleep(time.Minute)
		require.Equal(t, []corev1.PodIP{{IP: "192.0.2.2"}, {IP: "2001:db8::2"}}, n.status("a").PodIPs)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"192.0.2.1", "192.0.2.1,2001:db8::2", "192.0.2.2,2001:db8::2"}, addresses)
		require.Empty(t, n.errors())
	})
}
