// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni_test

import (
	"context"
	"fmt"
	"log"
	"path/filepath"

	"github.com/seed81659283/nodeagent/cni"
)

// The networks of a node, and which one its pods are attached to.
func ExampleDir() {
	config := cni.NewDir("testdata/conf").Load()
	for _, n := range config.Networks {
		fmt.Println(filepath.Base(n.File), n.Name, n.Version, len(n.Plugins), "plugins")
	}
	chosen, err := cni.Choose(config.Networks, "weave", 1)
	fmt.Println(chosen[0].Name, chosen[0].Capability(cni.CapPortMappings), err)
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
	if err := pods.Retain(ctx, nil); err != nil { // the sandboxes that the runtime has
		log.Print(err) // what could not be torn down is tried again by the next Retain
	}
	status, err := pods.Setup(ctx, cni.Pod{SandboxID: "8f1c", Namespace: "default", Name: "web", Ports: []cni.PortMapping{
		{HostPort: 8080, ContainerPort: 80},
	}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Netns, status.IPs)
	if err := pods.Teardown(ctx, "8f1c"); err != nil {
		log.Fatal(err)
	}
}

// What a plugin is told of a pod.
func ExamplePod_Capabilities() {
	caps, err := cni.Pod{
		Ports:       []cni.PortMapping{{Protocol: "TCP", HostPort: 8080, ContainerPort: 80}},
		Annotations: map[string]string{cni.AnnotationIngressBandwidth: "10M"},
	}.Capabilities()
	fmt.Println(string(caps[cni.CapPortMappings]), string(caps[cni.CapBandwidth]), err)
	// Output:
	// [{"hostPort":8080,"containerPort":80,"protocol":"tcp"}] {"ingressRate":10000000,"ingressBurst":4294967295} <nil>
}
