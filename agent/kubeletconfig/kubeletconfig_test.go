// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cgroups/podtree"
	"github.com/seed81659283/nodeagent/cgroups/topology"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/logs"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/shutdown"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// parse returns the configuration of a text with the defaults of a node of a cluster on containerd.
func parse(t *testing.T, text string) kubeletconfig.Configuration {
	t.Helper()
	c, err := kubeletconfig.Parse([]byte(header + text))
	require.NoError(t, err)
	c.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true})
	return c
}

// Parse names a refused field: one unknown to the kubelet, one that is not supported, one of another type, and a duplicate.
func TestParseNamesRefusedField(t *testing.T) {
	for text, want := range map[string]string{
		"staticPodPaths: /x":                  "staticPodPaths: unknown field",
		"memoryReservationPolicy: Tiered":     `memoryReservationPolicy: "Tiered" is not supported by this version, want "None"`,
		"cpuCFSQuota: false":                  "cpuCFSQuota: false is not supported by this version, want true",
		"port: many":                          `port: "many" is no int32`,
		"clusterDomain: 5":                    "clusterDomain: 5 is no string",
		"authentication: {x509: {caFile: x}}": "authentication.x509.caFile: unknown field",
		"port: 1\nport: 2":                    "yaml: unmarshal errors: line 4: key \"port\" already set in map",
	} {
		_, err := kubeletconfig.Parse([]byte(header + text))
		require.EqualError(t, err, want, text)
	}
	_, err := kubeletconfig.Parse([]byte("apiVersion: v1\nkind: Pod\n"))
	require.EqualError(t, err, `apiVersion and kind: "v1" and "Pod" are not kubelet.config.k8s.io/v1beta1 and KubeletConfiguration`)
	_, err = kubeletconfig.Parse([]byte(header + "# " + strings.Repeat("x", 1<<20)))
	require.EqualError(t, err, "must not be larger than 1048576 bytes")
}

// The kubelet writes empty values for unset fields. They mean the default, so they are no error in an unsupported field.
func TestParseIgnoresEmptyValuesOfUnsupportedFields(t *testing.T) {
	parse(t, `
syncFrequency: 0s
cpuManagerReconcilePeriod: 0s
memorySwap: {}
logging: {flushFrequency: 0, options: {json: {infoBufferSize: "0"}, text: {infoBufferSize: "0"}}, verbosity: 0}
resolvConf: ""
featureGates: null
tlsCipherSuites: []
`)
}

func TestValidateNamesFieldAndValue(t *testing.T) {
	for text, want := range map[string]string{
		"port: 65536":                                 "port: 65536 is not between 1 and 65535",
		"readOnlyPort: -1":                            "readOnlyPort: -1 is not between 0 and 65535",
		"containerLogMaxFiles: 1":                     "containerLogMaxFiles: 1 is not between 2 and 2147483647",
		"maxParallelImagePulls: 0":                    "maxParallelImagePulls: 0 is not between 1 and 2147483647",
		"imageGCLowThresholdPercent: 85":              "imageGCLowThresholdPercent: 85 must be less than imageGCHighThresholdPercent, which is 85",
		"fileCheckFrequency: -1s":                     "fileCheckFrequency: -1s must be greater than zero",
		"httpCheckFrequency: -1s":                     "httpCheckFrequency: -1s must be greater than zero",
		"imageMinimumGCAge: -1s":                      "imageMinimumGCAge: -1s must not be negative",
		"imageMaximumGCAge: 1m":                       "imageMaximumGCAge: 1m0s must be greater than imageMinimumGCAge, which is 2m0s",
		"address: localhost":                          `address: ParseAddr("localhost"): unable to parse IP`,
		"authorization: {mode: RBAC}":                 `authorization.mode: "RBAC" is neither Webhook nor AlwaysAllow`,
		"tlsCertFile: /c":                             `tlsCertFile and tlsPrivateKeyFile: "/c" and "": one of them is not set`,
		"clusterDNS: [10.96.0.10, nope]":              `clusterDNS[1]: ParseAddr("nope"): unable to parse IP`,
		"containerLogMaxSize: 10Mib":                  "containerLogMaxSize: \"10Mib\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
		"systemReserved: {memory: \"1e-2000000000\"}": "systemReserved[\"memory\"]: ",
		"topologyManagerPolicy: strict":               `topologyManagerPolicy: policy "strict" is neither none, best-effort, restricted nor single-numa-node`,
		"cpuManagerPolicy: dynamic":                   `cpuManagerPolicy: unknown policy: "dynamic", want none or static`,
		"reservedSystemCPUs: 1-":                      `reservedSystemCPUs: "1-": `,
		"memoryManagerPolicy: All":                    `memoryManagerPolicy: unknown policy: "All", want None or Static`,
		"memoryManagerPolicy: BestEffort":             `memoryManagerPolicy: policy "BestEffort" is not available for platform "linux"`,
		"reservedMemory: [{limits: {memory: 0}}]":     `reservedMemory: invalid configuration: reserved memory may not be zero for NUMA node 0 and resource "memory"`,
		"topologyManagerScope: node":                  `topologyManagerScope: "node" is neither container nor pod`,
		"shutdownGracePeriod: 1500ms":                 "shutdownGracePeriod: 1.5s and 0s must be whole seconds",
		"shutdownGracePeriodCriticalPods: 1s":         "shutdownGracePeriodCriticalPods: 1s must be between 0 and shutdownGracePeriod, which is 0s",
		"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: -1}]": "shutdownGracePeriodByPodPriority[0]: -1 s for priority 1 must not be negative, nor there twice",
	} {
		c := parse(t, text)
		require.ErrorContains(t, c.Validate(), want, text)
	}
	c := parse(t, "port: 0\nmaxPods: -1\nreadOnlyPort: 65536")
	require.EqualError(t, c.Validate(), "readOnlyPort: 65536 is not between 0 and 65535\nmaxPods: -1 is not between 0 and 2147483647", "all errors at once")
}

// The defaults use an API server only if there is one, and cgroups only if the runtime supports them.
func TestDefaultsDependOnClusterAndRuntime(t *testing.T) {
	var alone kubeletconfig.Configuration
	alone.SetDefaults(kubeletconfig.Defaults{})
	require.NoError(t, alone.Validate())
	assert.False(t, *alone.EnableServer || *alone.RegisterNode || *alone.Authentication.Webhook.Enabled || *alone.CgroupsPerQOS)
	member := parse(t, "")
	require.NoError(t, member.Validate())
	assert.True(t, *member.EnableServer && *member.RegisterNode && *member.Authentication.Webhook.Enabled && *member.CgroupsPerQOS)
	unregistered := parse(t, "registerNode: false")
	assert.True(t, *unregistered.EnableServer && *unregistered.Authentication.Webhook.Enabled, "as in the kubelet")
	quick := parse(t, "nodeStatusUpdateFrequency: 1s")
	assert.Equal(t, time.Second, quick.NodeStatusReportFrequency.Duration)
}

// The options of the engines have the values of the fields.
func TestEngineOptionsFollowFields(t *testing.T) {
	c := parse(t, `
clusterDNS: [10.96.0.10, "fd00::10"]
systemReserved: {cpu: 100m}
kubeReserved: {memory: 1Gi}
evictionHard: {memory.available: 10%, nodefs.available: 0%}
evictionSoft: {memory.available: 20%}
evictionSoftGracePeriod: {memory.available: 30s}
containerLogMaxSize: 1Mi
imageMaximumGCAge: 1h
shutdownGracePeriod: 30s
shutdownGracePeriodCriticalPods: 10s
`)
	require.NoError(t, c.Validate())
	dns, err := c.DNS()
	require.NoError(t, err)
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::10")}, dns)

	reserved, err := c.Reserved()
	require.NoError(t, err)
	assert.Equal(t, "100m", reserved.System.Cpu().String())
	assert.Equal(t, int64(1<<30), reserved.Kube.Memory().Value())
	assert.NotContains(t, reserved.System, corev1.ResourceMemory)
	assert.Equal(t, podtree.EvictionReserve{Fraction: 0.1}, reserved.MemoryAvailable)
	assert.Zero(t, reserved.NodeFSAvailable, "a disabled threshold reserves nothing")

	rules, err := c.EvictionRules()
	require.NoError(t, err)
	assert.Len(t, rules.Thresholds, 3, "memory.available hard, for all pods, and soft")

	policy, err := c.LogPolicy()
	require.NoError(t, err)
	assert.Equal(t, logs.Policy{MaxSize: 1 << 20, MaxFiles: 5}, policy)
	assert.Equal(t, time.Hour, c.ImagePolicy().MaxAge)
	assert.Equal(t, 85, c.ImagePolicy().HighThresholdPercent)

	periods, err := c.ShutdownPeriods()
	require.NoError(t, err)
	assert.Equal(t, shutdown.Periods(30*time.Second, 10*time.Second), periods)
}

// FuzzParse checks that no document causes a panic or a hang, and that an accepted document can be validated.
func FuzzParse(f *testing.F) {
	f.Add([]byte(header + "port: 1\nevictionHard: {memory.available: 1%}\n"))
	f.Add([]byte(header + "featureGates: {A: false}\nlogging: {}\n"))
	f.Add([]byte(header + "systemReserved: {cpu: \"1e-2000000000\"}"))
	f.Add([]byte(header + "authentication: null\nhealthzPort: null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := kubeletconfig.Parse(data)
		if err != nil {
			return
		}
		c.SetDefaults(kubeletconfig.Defaults{})
		_ = c.Validate()
	})
}

// The pods get no memory that the default threshold of evictions needs, if that is merged.
func TestReservedHasMergedThresholds(t *testing.T) {
	c, err := kubeletconfig.Parse([]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
		"evictionHard: {nodefs.available: 5%}\nmergeDefaultEvictionSettings: true\n"))
	require.NoError(t, err)
	c.SetDefaults(kubeletconfig.Defaults{})
	reserved, err := c.Reserved()
	require.NoError(t, err)
	require.Equal(t, "100Mi", reserved.MemoryAvailable.Quantity.String())
	require.InDelta(t, 0.05, reserved.NodeFSAvailable.Fraction, 0.001)
}

// driverReporter is a container runtime that reports a cgroup driver, or an error.
type driverReporter struct {
	cri.StatusReporter
	driver cri.CgroupDriver
	err    error
}

func (r driverReporter) CgroupDriver(context.Context) (cri.CgroupDriver, error) {
	return r.driver, r.err
}

// The cgroup driver of the configuration counts for a container runtime that does not report its driver.
func TestRuntimeCgroupDriverFallsBackToField(t *testing.T) {
	unsupported := driverReporter{err: fmt.Errorf("RuntimeConfig: %w", errors.ErrUnsupported)}
	for text, want := range map[string]cri.CgroupDriver{
		"": cri.CgroupDriverCgroupfs, "cgroupDriver: systemd": cri.CgroupDriverSystemd, "cgroupDriver: cgroupfs": cri.CgroupDriverCgroupfs,
	} {
		c := parse(t, text)
		require.NoError(t, c.Validate())
		got, err := c.RuntimeCgroupDriver(t.Context(), unsupported)
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
		got, err = c.RuntimeCgroupDriver(t.Context(), driverReporter{driver: cri.CgroupDriverSystemd})
		require.NoError(t, err)
		assert.Equal(t, cri.CgroupDriverSystemd, got, "the driver that the runtime reports has precedence")
		_, err = c.RuntimeCgroupDriver(t.Context(), driverReporter{err: io.ErrUnexpectedEOF})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

func TestReservedSystemCPUsReplaceReservedCPU(t *testing.T) {
	c := parse(t, `reservedSystemCPUs: 0-1,8
systemReserved: {cpu: 500m, memory: 1Gi}
kubeReserved: {cpu: 250m, pid: "100"}
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
topologyManagerPolicy: restricted
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
topologyManagerScope: pod
featureGates: {CPUManagerPolicyAlphaOptions: true}`)
	require.NoError(t, c.Validate())
	reserved, err := c.Reserved()
	require.NoError(t, err)
	assert.Equal(t, "3", reserved.System.Cpu().String())
	assert.Equal(t, "1Gi", reserved.System.Memory().String())
	assert.NotContains(t, reserved.Kube, corev1.ResourceCPU)
	config, err := c.CPUManager()
	require.NoError(t, err)
	assert.Equal(t, cpus.Config{
		Policy: cpus.PolicyStatic, Options: map[string]string{"full-pcpus-only": "true"}, ReservedMillis: 3000, ReservedCPUs: topology.NewCPUSet(0, 1, 8),
		Topology: device.Restricted, Gates: cpus.Gates{AlphaOptions: true},
	}, config)
	aligned, err := c.Topology()
	require.NoError(t, err)
	assert.Equal(t, device.Topology{Policy: device.Restricted, PodScope: true, Options: map[string]string{"prefer-closest-numa-nodes": "true"}}, aligned)
}

func TestGateOfPodLevelResourceManagers(t *testing.T) {
	for text, want := range map[string]bool{"": false, `featureGates: {PodLevelResourceManagers: true}`: true} {
		c := parse(t, text)
		require.NoError(t, c.Validate(), text)
		processors, err := c.CPUManager()
		require.NoError(t, err)
		memory, err := c.MemoryManager(1 << 30)
		require.NoError(t, err)
		aligned, err := c.Topology()
		require.NoError(t, err)
		assert.Equal(t, [3]bool{want, want, want}, [3]bool{processors.Gates.PodLevel, memory.PodLevel, aligned.PodLevel}, text)
	}
}

func TestGatesOfExclusiveResizes(t *testing.T) {
	for text, want := range map[string][2]bool{
		"": {}, `featureGates: {InPlacePodVerticalScalingExclusiveCPUs: true}`: {true, false}, `featureGates: {InPlacePodVerticalScalingExclusiveMemory: true}`: {false, true},
	} {
		c := parse(t, text)
		require.NoError(t, c.Validate(), text)
		resizeCPUs, resizeMemory := c.ExclusiveResizes()
		assert.Equal(t, want, [2]bool{resizeCPUs, resizeMemory}, text)
	}
}

// The policy Static must reserve as much on the NUMA nodes as systemReserved, kubeReserved and evictionHard together, which may be a part of the memory.
func TestMemoryManagerHasReservedMemory(t *testing.T) {
	c := parse(t, `memoryManagerPolicy: Static
systemReserved: {cpu: 500m, memory: 1Gi}
kubeReserved: {memory: 512Mi}
evictionHard: {memory.available: 25%}
reservedMemory: [{numaNode: 0, limits: {memory: 2Gi}}, {numaNode: 1, limits: {memory: 1610612736}}]`)
	require.NoError(t, c.Validate())
	config, err := c.MemoryManager(8 << 30)
	require.NoError(t, err)
	machine, err := topology.Parse("2 sockets 2 nodes 4 cores 4096 MiB")
	require.NoError(t, err)
	policy, err := numa.NewPolicy(machine, config)
	require.NoError(t, err)
	assert.Equal(t, []numa.Block{{Type: numa.Memory, Nodes: 1, Size: 2 << 30}, {Type: numa.Memory, Nodes: 2, Size: 2560 << 20}}, policy.Allocatable())

	config, err = c.MemoryManager(4 << 30)
	require.NoError(t, err)
	_, err = numa.NewPolicy(machine, config)
	require.EqualError(t, err, `the total amount "3758096384" of type "memory" is not equal to the value "2560Mi" determined by Node Allocatable feature`)

	c = parse(t, "reservedMemory: [{limits: {cpu: 1}}, {limits: {cpu: 1}}]")
	require.EqualError(t, c.Validate(), `reservedMemory: invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted
reservedMemory: invalid configuration: the limit type "cpu" for NUMA node 0 is not supported, only [memory hugepages-<HugePageSize>] is accepted
reservedMemory: invalid configuration: the reserved memory has a duplicate value for NUMA node 0 and resource "cpu"`)
}
