// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
)

// A program checks the file of a node before it is rolled out.
func ExampleLoad() {
	dir, _ := os.MkdirTemp("", "config")
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "agent.yaml")
	text := `
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
---
apiVersion: nodeagent/v1alpha1
kind: NodeConfiguration
nodeName: edge-1
keepObjects: true
`
	_ = os.WriteFile(file, []byte(text), 0o600)
	documents, err := kubeletconfig.Load(file)
	if err == nil {
		err = documents.SetDefaults()
	}
	fmt.Println(documents.Node.NodeName, documents.InCluster(), err)
	fmt.Println(documents.Validate())
	// Output:
	// edge-1 false <nil>
	// keepObjects needs kubeconfig: other config maps and secrets are on disk already
}

// A program with some of the engines reads their options from the file of a kubelet.
func ExampleConfiguration() {
	c, err := kubeletconfig.Parse([]byte(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
clusterDNS: [10.96.0.10]
systemReserved: {cpu: 100m}
containerLogMaxSize: 1Mi
shutdownGracePeriod: 30s
topologyManagerPolicy: restricted
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	c.SetDefaults(kubeletconfig.Defaults{RemoteRuntime: true})
	fmt.Println(c.Validate())
	rules, _ := c.EvictionRules() // for eviction.Options
	logs, _ := c.LogPolicy()      // for logs.RotatorOptions
	images := c.ImagePolicy()     // for gc.ImageOptions
	dns, _ := c.DNS()             // for podspec.Options
	reserved, _ := c.Reserved()   // for podtree.Options
	periods, _ := c.ShutdownPeriods()
	topology, _ := c.Topology() // for device.Options
	fmt.Println(topology.Policy, len(rules.Thresholds), logs.MaxSize, images.HighThresholdPercent, dns, reserved.System.Cpu(), periods[0].GracePeriod)
	// Output:
	// <nil>
	// restricted 6 1048576 85 [10.96.0.10] 100m 30s
}

// An installer warns before it moves a node of a kubelet that uses a field which this version does not support.
func ExampleUnsupported() {
	for _, field := range []string{"maxPods", "cpuManagerPolicy"} {
		fmt.Println(field, !slices.Contains(kubeletconfig.Unsupported(), field))
	}
	// Output:
	// maxPods true
	// cpuManagerPolicy false
}

// An installer shows the Node object and the access to the node's API that follow from documents in memory.
func ExampleParseDocuments() {
	documents, err := kubeletconfig.ParseDocuments([]byte(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 50
authentication: {anonymous: {enabled: false}}
---
apiVersion: nodeagent/v1alpha1
kind: NodeConfiguration
nodeName: edge-1
nodeLabels: {site: north}
`))
	if err == nil {
		err = documents.SetDefaults()
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	node, access := documents.NodeStatus(), documents.AuthOptions()
	fmt.Println(node.Name, node.Labels, node.MaxPods)
	fmt.Println("anonymous:", access.Anonymous, "always allow:", access.AlwaysAllow)
	// Output:
	// edge-1 map[site:north] 50
	// anonymous: false always allow: false
}
