// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

func hostIPs(s ...string) func() []netip.Addr { return func() []netip.Addr { return addrs(s...) } }

func handlers(list ...cri.RuntimeHandler) func() []cri.RuntimeHandler {
	return func() []cri.RuntimeHandler { return list }
}

// NodeIPs omits invalid addresses, and does not write to the result of HostIPs.
func TestNodeIPsOmitsInvalidAddresses(t *testing.T) {
	assert.Empty(t, podspec.Options{}.NodeIPs())
	assert.Equal(t, addrs("10.0.0.1"), podspec.Options{HostIPs: hostIPs("10.0.0.1")}.NodeIPs())
	some := []netip.Addr{{}, netip.MustParseAddr("10.0.0.1")}
	o := podspec.Options{HostIPs: func() []netip.Addr { return some }}
	assert.Equal(t, addrs("10.0.0.1"), o.NodeIPs())
	assert.False(t, some[0].IsValid())
}

// A container that is created after the node's address has changed gets the new address.
func TestContainerHasCurrentNodeAddress(t *testing.T) {
	node := addrs("10.0.0.1")
	able := []cri.RuntimeHandler{}
	o := podspec.Options{
		HostIPs:         func() []netip.Addr { return node },
		RuntimeHandlers: func() []cri.RuntimeHandler { return able },
		UserNamespace:   ids(cri.IDMapping{HostID: 131072, Length: 65536}, nil),
	}
	p := podtest.Pod(t, "", "env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}]")
	assert.Equal(t, "10.0.0.1", container(t, p, podspec.Launch{}, o).Env[0].Value)
	node = addrs("10.0.0.2")
	assert.Equal(t, "10.0.0.2", container(t, p, podspec.Launch{}, o).Env[0].Value)

	memory := func() (values []string) {
		p := podtest.Pod(t, "", "env: [{name: M, valueFrom: {resourceFieldRef: {resource: limits.memory}}}]")
		for _, e := range container(t, p, podspec.Launch{}, o).Env {
			values = append(values, e.Value)
		}
		return values
	}
	assert.Equal(t, []string{"0"}, memory(), "without Options.Allocatable")
	allocatable := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("3Ki")}
	o.Allocatable = func() corev1.ResourceList { return allocatable }
	assert.Equal(t, []string{"3072"}, memory())
	allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Ki")}
	assert.Equal(t, []string{"2048"}, memory())

	isolated := podtest.Pod(t, "hostUsers: false")
	_, err := podspec.Sandbox(isolated, 0, o)
	assert.ErrorContains(t, err, "the runtime has no user namespaces")
	able = []cri.RuntimeHandler{{UserNamespaces: true}}
	assert.Equal(t, cri.NamespacePod, sandbox(t, isolated, o).Security.Namespaces.User.Mode)
}
