// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

// fieldTable has the state of each field of otherFields: default (only the listed values are accepted), none (without effect) or supported (as a field
// of NodeConfiguration). The columns are name and state, the accepted values as JSON, and the reason. Missing values, and empty ones of fields that are no pointers, are always accepted.
const fieldTable = `
configMapAndSecretChangeDetectionStrategy default | "Watch" | config maps and secrets are watched
containerLogMaxWorkers none | - | one goroutine rotates the logs
containerLogMonitorInterval none | - | the log rotation chooses its interval
contentType none | - | the clients choose the encoding
cpuCFSQuota default | true | CPU limits are enforced
cpuCFSQuotaPeriod default | "100ms" |
crashLoopBackOff.maxContainerRestartPeriod default | "5m0s" |
defaultPodSysctls default | - |
enableContentionProfiling default | false |
enableControllerAttachDetach default | true | the controller of the cluster attaches volumes
enforceNodeAllocatable default | ["pods"] or ["none"] or [] | "pods" follows cgroupsPerQOS; no value but "pods" where that is true
hairpinMode none | - | the network plugin decides
imagePullCredentialsVerificationPolicy default | "NeverVerifyPreloadedImages" |
imageServiceEndpoint none | - | only the value of containerRuntimeEndpoint is accepted
iptablesDropBit none | - | the agent creates no iptables rules
iptablesMasqueradeBit none | - | the agent creates no iptables rules
kernelMemcgNotification none | - | the memory is measured periodically
kubeReservedCgroup default | - | limits are enforced for pods only
localStorageCapacityIsolation default | true |
logging.flushFrequency none | - | logs are not buffered
logging.format default | "text" |
logging.options.json.infoBufferSize default | "0" |
logging.options.json.splitStream default | false |
logging.options.text.infoBufferSize default | "0" |
logging.options.text.splitStream default | false |
logging.verbosity supported | - | up to 2 is INFO, 3 and 4 are DEBUG, a larger number logs more; logLevel of the NodeConfiguration and -v take precedence
logging.vmodule[].filePattern none | - | logLevel of the NodeConfiguration
logging.vmodule[].verbosity none | - | logLevel of the NodeConfiguration
memoryReservationPolicy default | "None" |
memorySwap.swapBehavior default | "NoSwap" | pods use no swap
nodeStatusMaxImages default | 50 |
preloadedImagesVerificationAllowlist default | - |
qosReserved default | - |
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
tracing.endpoint default | - |
tracing.samplingRatePerMillion default | 0 |
userNamespaces.idsPerPod default | 65536 |
volumePluginDir none | - | there are no FlexVolumes
`

// supportedComments returns the differences between supported fields and those of the kubelet, by name.
func supportedComments() map[string]string {
	return map[string]string{
		"cgroupDriver":                   "for container runtimes that do not report their cgroup driver",
		"cgroupRoot":                     `default "/", the meaning of an empty value in the kubelet`,
		"cgroupsPerQOS":                  "false without containerRuntimeEndpoint: plain processes have cgroups with true, if the agent is root; false does not need enforceNodeAllocatable",
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
		"failCgroupV1":                   "false by default, because cgroup v1 is supported; the kubelet refuses it by default",
		"failSwapOn":                     "false by default without containerRuntimeEndpoint",
		"protectKernelDefaults":          "false: the program kubelet and hostSettings set the parameters, as the kubelet does; other agents leave them unchanged",
		"makeIPTablesUtilChains":         "true by default for the program kubelet and with hostSettings; the rules are checked each minute without a canary chain",
		"oomScoreAdj":                    "for programs of their own with containerRuntimeEndpoint",
		"maxOpenFiles":                   "for programs of their own with containerRuntimeEndpoint",
		"kubeletCgroups":                 "for programs of their own with containerRuntimeEndpoint; the agent is moved when it starts, and not again each minute",
		"memoryThrottlingFactor":         "for cgroup v2",
		"volumeStatsAggPeriod":           "10 s in place of the default where there are eviction thresholds; volumes of CSI drivers at least 1m",
	}
}
