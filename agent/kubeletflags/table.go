// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import "github.com/seed81659283/nodeagent/agent/kubeletconfig"

// The ends of the kubelet's warnings about deprecated flags.
const (
	fieldDeprecated = "This parameter should be set via the config file specified by the Kubelet's --config flag. " +
		"See https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/ for more information."
	containerGCDeprecated = "Use --eviction-hard or --eviction-soft instead. Will be removed in a future version."
	allocatableDeprecated = "will be removed in 1.25 or later."
	mounterDeprecated     = "will be removed in 1.25 or later. in favor of using CSI."
)

// currentFieldFlags returns the flags of fieldFlags that are not deprecated.
func currentFieldFlags() []string {
	return []string{"fail-cgroupv1", "log-flush-frequency", "provider-id", "seccomp-default", "vmodule"}
}

// fieldFlagComments returns comments for some flags of fieldFlags, by flag name. They replace the comments of the fields.
func fieldFlagComments() map[string]string {
	return map[string]string{
		"anonymous-auth":               "without configuration file: false, the default of the file",
		"authentication-token-webhook": "without configuration file: true for a node of a cluster, the default of the file",
		"authorization-mode":           "without configuration file: Webhook, the default of the file",
		"read-only-port":               "without configuration file: 0, the default of the file",
		"container-runtime-endpoint":   "the default also holds for a file without the field",
		"feature-gates":                "merged with the gates of the file",
	}
}

// fieldFlags has the flags that set a field of KubeletConfiguration, sorted by name. The columns are name, field, type and default of the kubelet.
const fieldFlags = `
address address ip 0.0.0.0
allowed-unsafe-sysctls allowedUnsafeSysctls stringSlice []
anonymous-auth authentication.anonymous.enabled bool true
authentication-token-webhook authentication.webhook.enabled bool false
authentication-token-webhook-cache-ttl authentication.webhook.cacheTTL duration 2m0s
authorization-mode authorization.mode string AlwaysAllow
authorization-webhook-cache-authorized-ttl authorization.webhook.cacheAuthorizedTTL duration 5m0s
authorization-webhook-cache-unauthorized-ttl authorization.webhook.cacheUnauthorizedTTL duration 30s
cgroup-driver cgroupDriver string cgroupfs
cgroup-root cgroupRoot string
cgroups-per-qos cgroupsPerQOS bool true
client-ca-file authentication.x509.clientCAFile string
cluster-dns clusterDNS stringSlice []
cluster-domain clusterDomain string
container-log-max-files containerLogMaxFiles int32 5
container-log-max-size containerLogMaxSize string 10Mi
container-runtime-endpoint containerRuntimeEndpoint string unix:///run/containerd/containerd.sock
contention-profiling enableContentionProfiling bool false
cpu-cfs-quota cpuCFSQuota bool true
cpu-cfs-quota-period cpuCFSQuotaPeriod duration 100ms
cpu-manager-policy cpuManagerPolicy string none
cpu-manager-policy-options cpuManagerPolicyOptions mapStringString
cpu-manager-reconcile-period cpuManagerReconcilePeriod duration 10s
enable-controller-attach-detach enableControllerAttachDetach bool true
enable-debugging-handlers enableDebuggingHandlers bool true
enable-server enableServer bool true
enforce-node-allocatable enforceNodeAllocatable stringSlice [pods]
event-burst eventBurst int32 100
event-qps eventRecordQPS int32 50
eviction-hard evictionHard mapStringString
eviction-max-pod-grace-period evictionMaxPodGracePeriod int32 0
eviction-minimum-reclaim evictionMinimumReclaim mapStringString
eviction-pressure-transition-period evictionPressureTransitionPeriod duration 5m0s
eviction-soft evictionSoft mapStringString
eviction-soft-grace-period evictionSoftGracePeriod mapStringString
fail-cgroupv1 failCgroupV1 bool true
fail-swap-on failSwapOn bool true
feature-gates featureGates mapStringBool
file-check-frequency fileCheckFrequency duration 20s
hairpin-mode hairpinMode string promiscuous-bridge
healthz-bind-address healthzBindAddress ip 127.0.0.1
healthz-port healthzPort int32 10248
http-check-frequency httpCheckFrequency duration 20s
image-gc-high-threshold imageGCHighThresholdPercent int32 85
image-gc-low-threshold imageGCLowThresholdPercent int32 80
image-service-endpoint imageServiceEndpoint string
kernel-memcg-notification kernelMemcgNotification bool false
kube-api-burst kubeAPIBurst int32 100
kube-api-content-type contentType string application/vnd.kubernetes.protobuf
kube-api-qps kubeAPIQPS int32 50
kube-reserved kubeReserved mapStringString
kube-reserved-cgroup kubeReservedCgroup string
kubelet-cgroups kubeletCgroups string
local-storage-capacity-isolation localStorageCapacityIsolation bool true
log-flush-frequency logging.flushFrequency duration 5s
log-json-info-buffer-size logging.options.json.infoBufferSize quantity 0
log-json-split-stream logging.options.json.splitStream bool false
log-text-info-buffer-size logging.options.text.infoBufferSize quantity 0
log-text-split-stream logging.options.text.splitStream bool false
logging-format logging.format string text
make-iptables-util-chains makeIPTablesUtilChains bool true
manifest-url staticPodURL string
manifest-url-header staticPodURLHeader colonSeparatedMultimapStringString
max-open-files maxOpenFiles int64 1000000
max-pods maxPods int32 110
memory-manager-policy memoryManagerPolicy string None
minimum-image-ttl-duration imageMinimumGCAge duration 2m0s
node-status-max-images nodeStatusMaxImages int32 50
node-status-update-frequency nodeStatusUpdateFrequency duration 10s
oom-score-adj oomScoreAdj int32 -999
pod-cidr podCIDR string
pod-manifest-path staticPodPath string
pod-max-pids podPidsLimit int64 -1
pods-per-core podsPerCore int32 0
port port int32 10250
protect-kernel-defaults protectKernelDefaults bool false
provider-id providerID string
qos-reserved qosReserved mapStringString
read-only-port readOnlyPort int32 10255
register-node registerNode bool true
register-with-taints registerWithTaints []v1.Taint
registry-burst registryBurst int32 10
registry-qps registryPullQPS int32 5
reserved-cpus reservedSystemCPUs string
reserved-memory reservedMemory reserved-memory
resolv-conf resolvConf string /etc/resolv.conf
rotate-certificates rotateCertificates bool false
rotate-server-certificates serverTLSBootstrap bool false
runonce runOnce bool false
runtime-request-timeout runtimeRequestTimeout duration 2m0s
seccomp-default seccompDefault bool false
serialize-image-pulls serializeImagePulls bool true
streaming-connection-idle-timeout streamingConnectionIdleTimeout duration 4h0m0s
sync-frequency syncFrequency duration 1m0s
system-cgroups systemCgroups string
system-reserved systemReserved mapStringString
system-reserved-cgroup systemReservedCgroup string
tls-cert-file tlsCertFile string
tls-cipher-suites tlsCipherSuites stringSlice []
tls-min-version tlsMinVersion string
tls-private-key-file tlsPrivateKeyFile string
topology-manager-policy topologyManagerPolicy string none
topology-manager-policy-options topologyManagerPolicyOptions mapStringString
topology-manager-scope topologyManagerScope string container
vmodule logging.vmodule pattern=N,...
volume-plugin-dir volumePluginDir string /usr/libexec/kubernetes/kubelet-plugins/volume/exec/
volume-stats-agg-period volumeStatsAggPeriod duration 1m0s
`

// nodeFlags returns the flags that set no field of KubeletConfiguration.
func nodeFlags() []Flag {
	const supported, defaultOnly, noEffect = kubeletconfig.Supported, kubeletconfig.DefaultOnly, kubeletconfig.NoEffect
	return []Flag{
		{Name: "bootstrap-kubeconfig", Type: "string", State: supported, Comment: "kubeconfig file that gets the first certificate; needs --kubeconfig"},
		{Name: "cert-dir", Type: "string", Default: "/var/lib/kubelet/pki", State: supported, Comment: "directory of the certificates; the default also holds for a file without certDir"},
		{Name: "cloud-provider", Type: "string", State: supported, Comment: "external, which a cloud controller manager serves; empty: no cloud provider"},
		{Name: "config", Type: "string", State: supported, Comment: "configuration file, which flags override"},
		{Name: "config-dir", Type: "string", State: supported, Comment: "directory of *.conf files that override the configuration file"},
		{Name: "exit-on-lock-contention", Type: "bool", Default: "false", State: defaultOnly},
		{
			Name: "experimental-allocatable-ignore-eviction", Type: "bool", Default: "false", Deprecated: allocatableDeprecated, State: defaultOnly,
			Comment: "the allocatable resources exclude the hard eviction thresholds",
		},
		{
			Name: "experimental-mounter-path", Type: "string", Deprecated: mounterDeprecated, State: noEffect,
			Comment: "volumes are mounted with the programs of the host",
		},
		{Name: "help", Shorthand: "h", Type: "bool", Default: "false", State: supported, Comment: "print this text"},
		{Name: "hostname-override", Type: "string", State: supported, Comment: "name of the node in place of the host name"},
		{Name: "housekeeping-interval", Type: "duration", Default: "10s", State: noEffect, Comment: "the statistics choose their period"},
		{Name: "image-credential-provider-bin-dir", Type: "string", State: supported, Comment: "directory of the credential provider plugins"},
		{Name: "image-credential-provider-config", Type: "string", State: supported, Comment: "CredentialProviderConfig file, or directory of such files"},
		{Name: "kubeconfig", Type: "string", State: supported, Comment: "kubeconfig file of the API server; empty: the node belongs to no cluster"},
		{Name: "lock-file", Type: "string", State: defaultOnly},
		{
			Name: "maximum-dead-containers", Type: "int32", Default: "-1", Deprecated: containerGCDeprecated, State: defaultOnly,
			Comment: "terminated containers of all pods that are kept",
		},
		{
			Name: "maximum-dead-containers-per-container", Type: "int32", Default: "1", Deprecated: containerGCDeprecated, State: defaultOnly,
			Comment: "terminated containers that are kept for each container of a pod",
		},
		{
			Name: "minimum-container-ttl-duration", Type: "duration", Default: "0s", Deprecated: containerGCDeprecated, State: defaultOnly,
			Comment: "age of terminated containers that are removed",
		},
		{Name: "node-ip", Type: "string", State: supported, Comment: "address of the node, or an IPv4 and an IPv6 address separated by a comma"},
		{Name: "node-labels", Type: "mapStringString", State: supported, Comment: "labels of the Node object as key=value, separated by commas"},
		{Name: "root-dir", Type: "string", Default: "/var/lib/kubelet", State: supported, Comment: "directory of the agent's files; the default also holds for a file without rootDir"},
		{Name: "runtime-cgroups", Type: "string", State: noEffect, Comment: "the agent measures no cgroup of the container runtime"},
		{Name: "v", Shorthand: "v", Type: "Level", Default: "0", State: supported, Comment: "log level: up to 2 is INFO, 3 and 4 are DEBUG, a larger number logs more"},
		{Name: "version", Type: "version", Default: "false", State: supported, Comment: "print the version; --version=raw prints all its parts"},
	}
}
