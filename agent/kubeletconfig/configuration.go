// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIVersion and Kind are the values of apiVersion and kind in a document for Parse.
const (
	APIVersion = "kubelet.config.k8s.io/v1beta1"
	Kind       = "KubeletConfiguration"
)

// Configuration has the fields of a KubeletConfiguration v1beta1 that package agent supports. Names, JSON form and defaults are
// those of the kubelet. The zero value of a field means its default, which its comment names.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	FeatureGates map[string]bool `json:"featureGates,omitempty"` // defaults of the kubelet; see [Gates]

	StaticPodPath            string          `json:"staticPodPath,omitempty"`            // directory or file of pod manifests; none
	StaticPodURL             string          `json:"staticPodURL,omitempty"`             // polled for pod manifests; none
	FileCheckFrequency       metav1.Duration `json:"fileCheckFrequency,omitempty"`       // 20s: staticPodPath is read, if no change was reported meanwhile
	HTTPCheckFrequency       metav1.Duration `json:"httpCheckFrequency,omitempty"`       // 20s: staticPodURL is requested
	PodLogsDir               string          `json:"podLogsDir,omitempty"`               // /var/log/pods; without containerRuntimeEndpoint: logs in rootDir
	ContainerRuntimeEndpoint string          `json:"containerRuntimeEndpoint,omitempty"` // such as unix:///run/containerd/containerd.sock; empty: plain processes

	RegisterNode              *bool             `json:"registerNode,omitempty"`              // true for a node of a cluster; false: another client creates the Node object
	RegisterWithTaints        []corev1.Taint    `json:"registerWithTaints,omitempty"`        // none
	ProviderID                string            `json:"providerID,omitempty"`                // none
	MaxPods                   int32             `json:"maxPods,omitempty"`                   // 110
	PodsPerCore               int32             `json:"podsPerCore,omitempty"`               // no limit
	SystemReserved            map[string]string `json:"systemReserved,omitempty"`            // none
	KubeReserved              map[string]string `json:"kubeReserved,omitempty"`              // none
	NodeStatusUpdateFrequency metav1.Duration   `json:"nodeStatusUpdateFrequency,omitempty"` // 10s
	NodeStatusReportFrequency metav1.Duration   `json:"nodeStatusReportFrequency,omitempty"` // 5m, or nodeStatusUpdateFrequency where that is set
	NodeLeaseDurationSeconds  int32             `json:"nodeLeaseDurationSeconds,omitempty"`  // 40

	KubeAPIQPS     *int32 `json:"kubeAPIQPS,omitempty"`     // requests to the API server per second: 50; 0: 5
	KubeAPIBurst   int32  `json:"kubeAPIBurst,omitempty"`   // 100
	EventRecordQPS *int32 `json:"eventRecordQPS,omitempty"` // requests for events per second, which kubeAPIQPS does not count: 50; 0: no limit
	EventBurst     int32  `json:"eventBurst,omitempty"`     // 100

	RotateCertificates bool `json:"rotateCertificates,omitempty"` // request and renew the client certificate of the kubeconfig

	CgroupRoot           string   `json:"cgroupRoot,omitempty"`           // parent of kubepods; "/"
	CgroupDriver         string   `json:"cgroupDriver,omitempty"`         // cgroupfs; systemd: names of slices. For runtimes that do not report their driver
	CgroupsPerQOS        *bool    `json:"cgroupsPerQOS,omitempty"`        // true where there is a remote runtime; false: pods get no cgroup
	ClusterDNS           []string `json:"clusterDNS,omitempty"`           // addresses of name servers; none: pods of policy ClusterFirst get those of the host
	ClusterDomain        string   `json:"clusterDomain,omitempty"`        // none
	ResolvConf           *string  `json:"resolvConf,omitempty"`           // /etc/resolv.conf; empty: pods get no name server of the host
	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"` // none

	PodCIDR                string          `json:"podCIDR,omitempty"`                // passed to the container runtime at the start; none
	PodPidsLimit           *int64          `json:"podPidsLimit,omitempty"`           // processes and threads of a pod; -1: no limit
	MemoryThrottlingFactor *float64        `json:"memoryThrottlingFactor,omitempty"` // for memory.high on cgroup v2; none
	VolumeStatsAggPeriod   metav1.Duration `json:"volumeStatsAggPeriod,omitempty"`   // time between measurements of a volume: 1m; negative: volumes are not measured

	FailSwapOn             *bool  `json:"failSwapOn,omitempty"`             // do not start on a machine with swap; true for a container runtime
	FailCgroupV1           *bool  `json:"failCgroupV1,omitempty"`           // do not start on a host with cgroup v1; false
	ProtectKernelDefaults  bool   `json:"protectKernelDefaults,omitempty"`  // do not start with other kernel parameters than those of the kubelet; false
	MakeIPTablesUtilChains *bool  `json:"makeIPTablesUtilChains,omitempty"` // create the iptables chains of a kubelet; that of hostSettings
	OOMScoreAdj            *int32 `json:"oomScoreAdj,omitempty"`            // of this process: -999
	MaxOpenFiles           int64  `json:"maxOpenFiles,omitempty"`           // of this process: 1000000
	KubeletCgroups         string `json:"kubeletCgroups,omitempty"`         // cgroup of this process, as an absolute name; empty: that in which it was started

	CPUManagerPolicy             string            `json:"cpuManagerPolicy,omitempty"`             // none; static: exclusive CPUs for containers that request whole CPUs
	CPUManagerPolicyOptions      map[string]string `json:"cpuManagerPolicyOptions,omitempty"`      // of the policy static; none
	CPUManagerReconcilePeriod    metav1.Duration   `json:"cpuManagerReconcilePeriod,omitempty"`    // 10s
	ReservedSystemCPUs           string            `json:"reservedSystemCPUs,omitempty"`           // CPUs that no container gets exclusively, such as 0-1,8; chosen by the policy static
	MemoryManagerPolicy          string            `json:"memoryManagerPolicy,omitempty"`          // None; Static: containers of Guaranteed pods have memory on NUMA nodes of their own
	TopologyManagerPolicy        string            `json:"topologyManagerPolicy,omitempty"`        // none; aligns devices, CPUs and memory
	TopologyManagerPolicyOptions map[string]string `json:"topologyManagerPolicyOptions,omitempty"` // prefer-closest-numa-nodes, max-allowable-numa-nodes; none
	TopologyManagerScope         string            `json:"topologyManagerScope,omitempty"`         // container; or pod

	// ReservedMemory is the memory of each NUMA node that no container gets: none. The policy Static needs, of each type, the sum of systemReserved,
	// kubeReserved and evictionHard.
	ReservedMemory []MemoryReservation `json:"reservedMemory,omitempty"`

	SerializeImagePulls         *bool           `json:"serializeImagePulls,omitempty"`         // false; true: pull one image after the other
	MaxParallelImagePulls       *int32          `json:"maxParallelImagePulls,omitempty"`       // 5; the kubelet pulls one image after the other
	RegistryPullQPS             *int32          `json:"registryPullQPS,omitempty"`             // image pulls per second: 5; 0: no limit
	RegistryBurst               int32           `json:"registryBurst,omitempty"`               // 10
	ImageMinimumGCAge           metav1.Duration `json:"imageMinimumGCAge,omitempty"`           // 2m
	ImageMaximumGCAge           metav1.Duration `json:"imageMaximumGCAge,omitempty"`           // no limit
	ImageGCHighThresholdPercent *int32          `json:"imageGCHighThresholdPercent,omitempty"` // 85; 100: images stay
	ImageGCLowThresholdPercent  *int32          `json:"imageGCLowThresholdPercent,omitempty"`  // 80
	ContainerLogMaxSize         string          `json:"containerLogMaxSize,omitempty"`         // 10Mi
	ContainerLogMaxFiles        *int32          `json:"containerLogMaxFiles,omitempty"`        // 5

	EvictionHard                     map[string]string `json:"evictionHard,omitempty"` // eviction.DefaultHard; an empty map: no threshold
	EvictionSoft                     map[string]string `json:"evictionSoft,omitempty"` // none
	EvictionSoftGracePeriod          map[string]string `json:"evictionSoftGracePeriod,omitempty"`
	EvictionMinimumReclaim           map[string]string `json:"evictionMinimumReclaim,omitempty"`
	EvictionMaxPodGracePeriod        int32             `json:"evictionMaxPodGracePeriod,omitempty"`
	EvictionPressureTransitionPeriod metav1.Duration   `json:"evictionPressureTransitionPeriod,omitempty"` // 5m
	MergeDefaultEvictionSettings     *bool             `json:"mergeDefaultEvictionSettings,omitempty"`     // false

	ShutdownGracePeriod              metav1.Duration                    `json:"shutdownGracePeriod,omitempty"` // 0: the machine does not wait for pods
	ShutdownGracePeriodCriticalPods  metav1.Duration                    `json:"shutdownGracePeriodCriticalPods,omitempty"`
	ShutdownGracePeriodByPodPriority []ShutdownGracePeriodByPodPriority `json:"shutdownGracePeriodByPodPriority,omitempty"`

	EnableServer                   *bool           `json:"enableServer,omitempty"`       // true where the machine is a node of a cluster
	Address                        string          `json:"address,omitempty"`            // 0.0.0.0
	Port                           int32           `json:"port,omitempty"`               // 10250
	ReadOnlyPort                   int32           `json:"readOnlyPort,omitempty"`       // none
	HealthzBindAddress             string          `json:"healthzBindAddress,omitempty"` // 127.0.0.1
	HealthzPort                    *int32          `json:"healthzPort,omitempty"`        // 10248 where there is a container runtime, a cluster or a server; 0: none
	TLSCertFile                    string          `json:"tlsCertFile,omitempty"`        // a self-signed certificate
	TLSPrivateKeyFile              string          `json:"tlsPrivateKeyFile,omitempty"`
	ServerTLSBootstrap             bool            `json:"serverTLSBootstrap,omitempty"` // request the certificate from the cluster, which must approve it
	Authentication                 Authentication  `json:"authentication"`
	Authorization                  Authorization   `json:"authorization"`
	EnableDebuggingHandlers        *bool           `json:"enableDebuggingHandlers,omitempty"`        // true
	EnableProfilingHandler         *bool           `json:"enableProfilingHandler,omitempty"`         // true
	EnableDebugFlagsHandler        *bool           `json:"enableDebugFlagsHandler,omitempty"`        // true
	EnableSystemLogHandler         *bool           `json:"enableSystemLogHandler,omitempty"`         // true: serve /var/log
	EnableSystemLogQuery           *bool           `json:"enableSystemLogQuery,omitempty"`           // false: do not serve the journal
	StreamingConnectionIdleTimeout metav1.Duration `json:"streamingConnectionIdleTimeout,omitempty"` // 4h

	other *otherFields // fields without effect, and fields that must have their defaults; nil: none is set
}

// Authentication configures how clients of the node's API are authenticated.
type Authentication struct {
	X509      X509Authentication      `json:"x509"`
	Webhook   WebhookAuthentication   `json:"webhook"`
	Anonymous AnonymousAuthentication `json:"anonymous"`
}

// X509Authentication configures the authentication by client certificates.
type X509Authentication struct {
	ClientCAFile string `json:"clientCAFile,omitempty"` // none: clients have no certificates
}

// WebhookAuthentication configures the review of bearer tokens by the API server.
type WebhookAuthentication struct {
	Enabled  *bool           `json:"enabled,omitempty"` // true where the machine is a node of a cluster
	CacheTTL metav1.Duration `json:"cacheTTL,omitempty"`
}

// AnonymousAuthentication permits requests without credentials, as user system:anonymous.
type AnonymousAuthentication struct {
	Enabled *bool `json:"enabled,omitempty"` // false
}

// Modes of an [Authorization].
const (
	webhook     = "Webhook"     // the API server decides, by a SubjectAccessReview
	AlwaysAllow = "AlwaysAllow" // every authenticated request is authorized
)

// Authorization configures how requests to the node's API are authorized.
type Authorization struct {
	Mode    string               `json:"mode,omitempty"` // Webhook
	Webhook WebhookAuthorization `json:"webhook"`
}

// WebhookAuthorization configures the review of requests by the API server.
type WebhookAuthorization struct {
	CacheAuthorizedTTL   metav1.Duration `json:"cacheAuthorizedTTL,omitempty"`   // 5m
	CacheUnauthorizedTTL metav1.Duration `json:"cacheUnauthorizedTTL,omitempty"` // 30s
}

// ShutdownGracePeriodByPodPriority is the time for terminating pods of at least this priority at a node shutdown.
type ShutdownGracePeriodByPodPriority struct {
	Priority                   int32 `json:"priority"`
	ShutdownGracePeriodSeconds int64 `json:"shutdownGracePeriodSeconds"`
}
