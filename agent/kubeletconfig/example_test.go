// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cri"
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
	fmt.Println(strings.ReplaceAll(documents.Validate().Error(), dir, "/etc/nodeagent"))
	// Output:
	// edge-1 false <nil>
	// /etc/nodeagent/agent.yaml: keepObjects needs kubeconfig: other config maps and secrets are on disk already
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
	cpus, _ := c.CPUManager()   // for placement.NewNode
	memory, _ := c.MemoryManager(16 << 30)
	fmt.Println("listen on", c.APIAddresses(), c.HealthzAddress())
	fmt.Println(cpus.Policy, cpus.ReservedMillis, memory.Policy, memory.HardEviction.String())
	fmt.Println(topology.Policy, len(rules.Thresholds), logs.MaxSize, images.HighThresholdPercent, dns, reserved.System.Cpu(), periods[0].GracePeriod)
	// Output:
	// <nil>
	// listen on [0.0.0.0:10250] 127.0.0.1:10248
	// none 100 None 100Mi
	// restricted 6 1048576 85 [10.96.0.10] 100m 30s
}

// An installer warns before it moves a node of a kubelet that uses a field which this version does not support.
func ExampleUnsupported() {
	for _, field := range []string{"maxPods", "memoryReservationPolicy"} {
		fmt.Println(field, !slices.Contains(kubeletconfig.Unsupported(), field))
	}
	// Output:
	// maxPods true
	// memoryReservationPolicy false
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

// A node has the file of its cluster, and a drop-in of its own.
func ExampleLoadDir() {
	dir, _ := os.MkdirTemp("", "config")
	defer os.RemoveAll(dir)
	header := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	_ = os.Mkdir(filepath.Join(dir, "kubelet.conf.d"), 0o700)
	_ = os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(header+"maxPods: 110\nkubeReserved: {cpu: 100m}\n"), 0o600)
	_ = os.WriteFile(filepath.Join(dir, "kubelet.conf.d", "10-large.conf"), []byte(header+"maxPods: 250\nkubeReserved: {memory: 1Gi}\n"), 0o600)
	documents, err := kubeletconfig.LoadDir(filepath.Join(dir, "config.yaml"), filepath.Join(dir, "kubelet.conf.d"))
	fmt.Println(documents.Kubelet.MaxPods, documents.Kubelet.KubeReserved, err)
	// Output:
	// 250 map[cpu:100m memory:1Gi] <nil>
}

// An installer lists the settings that a node of a kubelet must not change.
func ExampleFields() {
	for _, f := range kubeletconfig.Fields() {
		if strings.HasPrefix(f.Name, "cpuCFS") {
			fmt.Println(f.Name, f.State, f.Accept)
		}
	}
	for _, g := range kubeletconfig.Gates() {
		if g.Name == "GracefulNodeShutdown" {
			fmt.Println(g.Name, g.State, g.Default)
		}
	}
	// Output:
	// cpuCFSQuota default only [true]
	// cpuCFSQuotaPeriod default only ["100ms"]
	// GracefulNodeShutdown supported true
}

func ExampleConfiguration_HostDNS() {
	file, err := os.CreateTemp("", "resolv.conf")
	if err != nil {
		panic(err)
	}
	defer os.Remove(file.Name())
	fmt.Fprintln(file, "nameserver 10.0.0.53\nsearch example.org")
	c := kubeletconfig.Configuration{ResolvConf: new(file.Name())}
	c.SetDefaults(kubeletconfig.Defaults{})
	dns, err := c.HostDNS()()
	fmt.Println(dns.Servers, dns.Searches, err)
	// Output: [10.0.0.53] [example.org] <nil>
}

func ExampleNodeConfiguration_unhealthyDevices() {
	for _, value := range []string{kubeletconfig.EvictUnhealthy, kubeletconfig.RestartUnhealthy, "Drain"} {
		d := kubeletconfig.Documents{Node: kubeletconfig.NodeConfiguration{UnhealthyDevices: value}}
		if err := d.SetDefaults(); err != nil {
			panic(err)
		}
		fmt.Printf("%s: %v\n", value, d.Validate())
	}
	// Output:
	// Evict: <nil>
	// Restart: <nil>
	// Drain: unhealthyDevices: "Drain" is not Evict or Restart
}

// A program that changes a field says so, and errors about the field do not name the file.
func ExampleDocuments_SetBy() {
	d := kubeletconfig.Documents{}
	d.Kubelet.MaxPods = -1
	d.SetBy("--max-pods=-1", "maxPods")
	if err := d.SetDefaults(); err != nil {
		panic(err)
	}
	fmt.Println(d.Validate())
	// Output: --max-pods=-1: maxPods: -1 is not between 0 and 2147483647
}

// Zero means another limit, or none.
func ExampleConfiguration_PullRate() {
	c := kubeletconfig.Configuration{KubeAPIQPS: new(int32(0)), RegistryPullQPS: new(int32(0)), EventBurst: 20}
	c.SetDefaults(kubeletconfig.Defaults{})
	for _, rate := range []kubeletconfig.Rate{c.APIRate(), c.EventRate(), c.PullRate()} {
		fmt.Println(rate.PerSecond, rate.Burst)
	}
	// Output:
	// 5 100
	// 50 20
	// -1 10
}

// oldRuntime is a container runtime that does not report its cgroup driver.
type oldRuntime struct{ cri.StatusReporter }

func (oldRuntime) CgroupDriver(context.Context) (cri.CgroupDriver, error) {
	return 0, errors.ErrUnsupported
}

func ExampleConfiguration_ExclusiveResizes() {
	c := kubeletconfig.Configuration{FeatureGates: map[string]bool{"InPlacePodVerticalScalingExclusiveCPUs": true}}
	cpus, memory := c.ExclusiveResizes()
	fmt.Println("CPUs:", cpus, "memory:", memory)
	// Output: CPUs: true memory: false
}

func ExampleConfiguration_RuntimeCgroupDriver() {
	c := kubeletconfig.Configuration{CgroupDriver: "systemd"}
	fmt.Println(c.RuntimeCgroupDriver(context.Background(), oldRuntime{}))
	// Output: systemd <nil>
}

// An agent without package agent checks the machine, and limits pods and their volumes, as the fields of the kubelet demand.
func ExampleDocuments_PrepareHost() {
	d, err := kubeletconfig.ParseDocuments([]byte(`
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
podPidsLimit: 1000
podCIDR: 10.1.0.0/24
volumeStatsAggPeriod: 2m
`))
	if err != nil {
		panic(err)
	}
	if err := d.SetDefaults(); err != nil {
		panic(err)
	}
	fmt.Println(d.PrepareHost(false, nil), d.HostSettings(true).FailSwapOn)
	var cgroups podtree.Options
	d.Kubelet.LimitPods(&cgroups, nil)
	period, measured := d.Kubelet.VolumePeriod()
	fmt.Println(cgroups.Node.PodPidsLimit, period, measured)
	d.Kubelet.SetPodCIDR(context.Background(), nil, slog.Default()) // of a runtime without cri.PodCIDRSetter
	// Output:
	// <nil> false
	// 1000 2m0s true
}
