// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

// fieldTable has the state of each field of otherFields: default (only the listed values are accepted) or none (without effect). The columns are
// name and state, the accepted values as JSON, and the reason. Missing values, and empty ones of fields that are no pointers, are always accepted.
const fieldTable = `
configMapAndSecretChangeDetectionStrategy default | "Watch" | config maps and secrets are watched
containerLogMaxWorkers none | - | one goroutine rotates the logs
containerLogMonitorInterval none | - | the log rotation chooses its interval
contentType none | - | the clients choose the encoding
cpuCFSQuota default | true | CPU limits are enforced
cpuCFSQuotaPeriod default | "100ms" |
cpuManagerPolicy default | "none" | no exclusive CPUs
cpuManagerPolicyOptions default | - | no exclusive CPUs
cpuManagerReconcilePeriod none | - | no exclusive CPUs
crashLoopBackOff.maxContainerRestartPeriod default | "5m0s" |
defaultPodSysctls default | - |
enableContentionProfiling default | false |
enableControllerAttachDetach default | true | the controller of the cluster attaches volumes
enforceNodeAllocatable default | ["pods"] or ["none"] or [] | "pods" follows cgroupsPerQOS; no value but "pods" where that is true
failCgroupV1 none | - | cgroup v1 and v2 are supported
failSwapOn none | - | the agent starts with swap
hairpinMode none | - | the network plugin decides
imagePullCredentialsVerificationPolicy default | "NeverVerifyPreloadedImages" |
imageServiceEndpoint none | - | only the value of containerRuntimeEndpoint is accepted
iptablesDropBit none | - | the agent creates no iptables rules
iptablesMasqueradeBit none | - | the agent creates no iptables rules
kernelMemcgNotification none | - | the memory is measured periodically
kubeReservedCgroup default | - | limits are enforced for pods only
kubeletCgroups none | - | the agent stays in the cgroup in which it was started
localStorageCapacityIsolation default | true |
logging.flushFrequency none | - | logs are not buffered
logging.format default | "text" |
logging.options.json.infoBufferSize default | "0" |
logging.options.json.splitStream default | false |
logging.options.text.infoBufferSize default | "0" |
logging.options.text.splitStream default | false |
logging.verbosity none | - | logLevel of the NodeConfiguration
logging.vmodule[].filePattern none | - | logLevel of the NodeConfiguration
logging.vmodule[].verbosity none | - | logLevel of the NodeConfiguration
makeIPTablesUtilChains none | - | the agent creates no iptables rules
maxOpenFiles none | - | the service manager sets the limit
memoryManagerPolicy default | "None" | no reserved NUMA memory
memoryReservationPolicy default | "None" |
memorySwap.swapBehavior default | "NoSwap" | pods use no swap
memoryThrottlingFactor default | 0.9 | memory.high is not set; the kubelet sets it with its gate MemoryQoS
nodeStatusMaxImages default | 50 |
oomScoreAdj none | - | the service manager sets the score of the agent
podCIDR none | - | the network plugin has its own configuration
podPidsLimit default | -1 |
preloadedImagesVerificationAllowlist default | - |
protectKernelDefaults default | false |
qosReserved default | - |
reservedMemory[].limits default | - | no reserved NUMA memory
reservedMemory[].numaNode default | - | no reserved NUMA memory
reservedSystemCPUs default | - | no exclusive CPUs
runOnce default | false | the kubelet refuses true, too
runtimeRequestTimeout default | "2m" |
seccompDefault default | false |
showHiddenMetricsForVersion default | - |
singleProcessOOMKill default | false | on cgroup v2 all processes of a container are killed
staticPodURLHeader default | - |
syncFrequency none | - | pods are synchronized when they change
systemCgroups default | - | the agent moves no processes
systemReservedCgroup default | - | limits are enforced for pods only
tlsCipherSuites default | - |
tlsCurvePreferences default | - |
tlsMinVersion default | "VersionTLS12" |
topologyManagerPolicyOptions default | - |
tracing.endpoint default | - |
tracing.samplingRatePerMillion default | 0 |
userNamespaces.idsPerPod default | 65536 |
volumePluginDir none | - | there are no FlexVolumes
volumeStatsAggPeriod none | - | the statistics choose their period
`

// supportedComments returns the differences between supported fields and those of the kubelet, by name.
func supportedComments() map[string]string {
	return map[string]string{
		"cgroupDriver":                   "for container runtimes that do not report their cgroup driver",
		"cgroupRoot":                     `default "/", the meaning of an empty value in the kubelet`,
		"cgroupsPerQOS":                  "false without containerRuntimeEndpoint; false does not need enforceNodeAllocatable",
		"containerRuntimeEndpoint":       "empty: plain processes; the kubelet has the socket of containerd",
		"enableServer":                   "true for a node of a cluster only",
		"authentication.webhook.enabled": "true for a node of a cluster only",
		"registerNode":                   "true for a node of a cluster only",
		"fileCheckFrequency":             "changes are also watched, as in the kubelet",
		"featureGates":                   "see the table of gates",
		"healthzPort":                    "none for plain processes, unless there is a cluster or a server",
		"registryPullQPS":                "a pull above the limit waits up to a minute; in the kubelet it fails at once",
		"maxParallelImagePulls":          "5 by default; the kubelet pulls one image after the other",
		"serializeImagePulls":            "false by default, with at most maxParallelImagePulls pulls at a time",
		"mergeDefaultEvictionSettings":   "also counts in drop-ins, where the kubelet ignores it",
		"shutdownGracePeriod":            "whole seconds",
	}
}
