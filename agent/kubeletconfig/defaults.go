// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/cgroups/cpus"
	"github.com/seed81659283/nodeagent/cgroups/numa"
	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/eviction"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// defaultResolvConf is the default of resolvConf.
const defaultResolvConf = "/etc/resolv.conf"

// defaultVolumePeriod is the default of volumeStatsAggPeriod.
const defaultVolumePeriod = time.Minute

// The default ports of a kubelet.
const (
	defaultPort        = 10250
	defaultHealthzPort = 10248
)

// Defaults has the properties of a node on which the defaults of some fields depend.
type Defaults struct {
	Cluster       bool // the node belongs to a cluster: see [Documents.InCluster]
	RemoteRuntime bool // containers run in a container runtime that has cgroups
	HostSettings  bool // the agent may change the machine: see NodeConfiguration.HostSettings
}

// SetDefaults sets each missing field to the kubelet's default. Some defaults depend on d, the properties of the node. After
// the call no pointer field is nil. Source: pkg/kubelet/apis/config/v1beta1/defaults.go.
func (c *Configuration) SetDefaults(d Defaults) {
	c.APIVersion, c.Kind = APIVersion, Kind
	setDefault(&c.PodLogsDir, "/var/log/pods")

	setDuration(&c.FileCheckFrequency, 20*time.Second)
	setDuration(&c.HTTPCheckFrequency, 20*time.Second)

	setPointer(&c.RegisterNode, d.Cluster)
	setDefault(&c.MaxPods, nodestatus.DefaultMaxPods)
	if c.NodeStatusReportFrequency.Duration == 0 {
		c.NodeStatusReportFrequency.Duration = cmp.Or(c.NodeStatusUpdateFrequency.Duration, 5*time.Minute)
	}
	setDuration(&c.NodeStatusUpdateFrequency, 10*time.Second)
	setDefault(&c.NodeLeaseDurationSeconds, 40)

	setPointer(&c.KubeAPIQPS, 50)
	setDefault(&c.KubeAPIBurst, 100)
	setPointer(&c.EventRecordQPS, 50)
	setDefault(&c.EventBurst, 100)
	setPointer(&c.RegistryPullQPS, 5)
	setDefault(&c.RegistryBurst, 10)

	setPointer(&c.ResolvConf, defaultResolvConf)
	setDefault(&c.CgroupRoot, "/")
	setDefault(&c.CgroupDriver, cri.CgroupDriverCgroupfs.String())
	setPointer(&c.CgroupsPerQOS, d.RemoteRuntime)

	setDefault(&c.CPUManagerPolicy, cpus.PolicyNone)
	setDuration(&c.CPUManagerReconcilePeriod, 10*time.Second)
	setDefault(&c.MemoryManagerPolicy, numa.PolicyNone)
	setDefault(&c.TopologyManagerPolicy, device.None.String())
	setDefault(&c.TopologyManagerScope, "container")

	images := gc.DefaultImagePolicy()
	setPointer(&c.SerializeImagePulls, c.MaxParallelImagePulls != nil && *c.MaxParallelImagePulls < 2)
	if *c.SerializeImagePulls {
		setPointer(&c.MaxParallelImagePulls, 1)
	}
	setPointer(&c.MaxParallelImagePulls, 5)
	setDuration(&c.ImageMinimumGCAge, images.MinAge)
	setPointer(&c.ImageGCHighThresholdPercent, int32(images.HighThresholdPercent))
	setPointer(&c.ImageGCLowThresholdPercent, int32(images.LowThresholdPercent))
	setDefault(&c.ContainerLogMaxSize, "10Mi")
	setPointer(&c.ContainerLogMaxFiles, 5)

	if c.EvictionHard == nil {
		c.EvictionHard = eviction.DefaultHard()
	}
	setDuration(&c.EvictionPressureTransitionPeriod, 5*time.Minute)
	setPointer(&c.MergeDefaultEvictionSettings, false)
	c.setHostDefaults(d)
	c.setServerDefaults(d)
}

// setHostDefaults sets the missing fields for the machine, the limits of pods and this process.
func (c *Configuration) setHostDefaults(d Defaults) {
	if c.PodPidsLimit == nil || *c.PodPidsLimit < 0 {
		c.PodPidsLimit = new(int64(-1))
	}
	setDuration(&c.VolumeStatsAggPeriod, defaultVolumePeriod)
	setPointer(&c.FailSwapOn, d.RemoteRuntime)
	setPointer(&c.FailCgroupV1, false)
	setPointer(&c.MakeIPTablesUtilChains, d.HostSettings)
	setPointer(&c.OOMScoreAdj, -999)
	setDefault(&c.MaxOpenFiles, 1_000_000)
}

// setServerDefaults sets the missing fields for the API of the node. If the node belongs to a cluster, this API is enabled
// by default.
func (c *Configuration) setServerDefaults(d Defaults) {
	setPointer(&c.EnableServer, d.Cluster)
	setDefault(&c.Address, "0.0.0.0")
	setDefault(&c.Port, defaultPort)
	setDefault(&c.HealthzBindAddress, "127.0.0.1")
	if d.Cluster || d.RemoteRuntime || *c.EnableServer {
		setPointer(&c.HealthzPort, defaultHealthzPort)
	}
	setPointer(&c.HealthzPort, 0) // several programs with agents of plain processes may share a host
	setPointer(&c.Authentication.Anonymous.Enabled, false)
	setPointer(&c.Authentication.Webhook.Enabled, d.Cluster)
	setDuration(&c.Authentication.Webhook.CacheTTL, 2*time.Minute)
	setDefault(&c.Authorization.Mode, webhook)
	setDuration(&c.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	setDuration(&c.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	for _, handler := range []**bool{&c.EnableDebuggingHandlers, &c.EnableProfilingHandler, &c.EnableDebugFlagsHandler, &c.EnableSystemLogHandler} {
		setPointer(handler, true)
	}
	setPointer(&c.EnableSystemLogQuery, false)
	setDuration(&c.StreamingConnectionIdleTimeout, 4*time.Hour)
}

func setDefault[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

func setPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

func setDuration(field *metav1.Duration, value time.Duration) {
	setDefault(&field.Duration, value)
}
