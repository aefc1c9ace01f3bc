// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"path/filepath"

	"github.com/seed81659283/nodeagent/cni"
)

// The networks of a node, and the default network of its pods.
func ExampleDir() {
	config := cni.NewDir("testdata/conf").Load()
	for _, n := range config.Networks {
		fmt.Println(filepath.Base(n.File), n.Name, n.Version, len(n.Plugins), "plugins")
	}
	chosen, err := cni.ChooseNetworks(config.Networks, "weave", 1)
	fmt.Println(chosen[0].Name, chosen[0].HasCapability(cni.CapPortMappings), err)
	// Output:
	// 10-calico.conflist k8s-pod-network 0.3.1 3 plugins
	// 10-flannel.conflist cbr0 0.3.1 2 plugins
	// 10-weave.conflist weave 0.3.0 2 plugins
	// weave true <nil>
}

// The network of a sandbox, from set-up to teardown.
func ExampleOpen() {
	ctx := context.Background()
	pods, err := cni.Open("/var/lib/agent/cni", cni.Options{NetnsDir: "/run/agent/netns"})
	if err != nil {
		log.Fatal(err)
	}
	defer pods.Close()
	for _, p := range pods.Config().Problems {
		log.Print(p) // the remaining files are used
	}
	if err := pods.Ready(ctx); errors.Is(err, cni.ErrNoNetwork) {
		log.Print("the agent of the network has not written its configuration yet")
	}
	if err := pods.Retain(ctx, nil); err != nil { // the argument is the list of the runtime's sandboxes
		log.Print(err) // the next Retain repeats a failed teardown
	}
	status, err := pods.Setup(ctx, cni.Pod{SandboxID: "8f1c", Namespace: "default", Name: "web", Ports: []cni.PortMapping{
		{HostPort: 8080, ContainerPort: 80},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Netns, status.IPs)
	if status, err = pods.Inspect("8f1c"); err == nil { // as a restarted agent does
		fmt.Println(status.IPs)
	}
	if err := pods.Teardown(ctx, "8f1c"); err != nil {
		log.Fatal(err)
	}
}

// The details that the plugins of a network accept for each pod.
func ExampleNetwork_HasCapability() {
	network, err := cni.ParseNetwork([]byte(`{"name": "pods", "cniVersion": "1.0.0", "plugins": [
		{"type": "bridge", "capabilities": {"ips": true, "mac": true}}, {"type": "portmap", "capabilities": {"portMappings": true}}]}`))
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range []string{
		cni.CapPortMappings, cni.CapBandwidth, cni.CapDNS, cni.CapIPs, cni.CapIPRanges, cni.CapMAC, cni.CapAliases, cni.CapCgroupPath,
		cni.CapPodAnnotations,
	} {
		if network.HasCapability(c) {
			fmt.Println(c)
		}
	}
	// Output:
	// portMappings
	// ips
	// mac
}

// The network of a sandbox that is no pod, such as a virtual machine, with single CNI commands.
func ExamplePlugins() {
	ctx := context.Background()
	network, err := cni.ParseNetwork([]byte(`{"name": "vms", "cniVersion": "1.1.0", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}]}`))
	if err != nil {
		log.Fatal(err)
	}
	plugins := cni.NewPlugins(cni.PluginOptions{CacheDir: "/var/lib/agent/vms"})
	versions, err := plugins.Versions(ctx, "bridge")
	fmt.Println(versions, err)
	vm := cni.Attachment{ContainerID: "vm1", Netns: "/run/netns/vm1", Interface: "eth0"}
	result, err := plugins.Add(ctx, network, vm)
	if failed, ok := errors.AsType[*cni.Error](err); ok && failed.Code == 11 {
		log.Print("try again later: ", err)
	}
	if err != nil {
		log.Fatal(errors.Join(err, plugins.Del(ctx, network, vm)))
	}
	fmt.Println(result.IPs)
	if err := plugins.GC(ctx, network, []cni.Attachment{vm}); err != nil { // removes all other attachments
		log.Print(err)
	}
}

// The capability values of a pod for plugins.
func ExamplePod_Capabilities() {
	caps, err := cni.Pod{
		Ports:       []cni.PortMapping{{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}},
		Annotations: map[string]string{cni.AnnotationIngressBandwidth: "10M", cni.AnnotationEgressBandwidth: "1M"},
	}.Capabilities()
	fmt.Println(string(caps[cni.CapPortMappings]), string(caps[cni.CapBandwidth]), err)
	// Output:
	// [{"hostPort":8080,"containerPort":80,"protocol":"tcp"}] {"ingressRate":10000000,"ingressBurst":4294967295,"egressRate":1000000,"egressBurst":4294967295} <nil>
}
