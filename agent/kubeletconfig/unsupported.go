// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import "strings"

// unsupportedFields lists the fields of KubeletConfiguration v1beta1 (Kubernetes 1.37) that Configuration does not have, sorted
// by name.
const unsupportedFields = `
	cgroupDriver configMapAndSecretChangeDetectionStrategy containerLogMaxWorkers containerLogMonitorInterval contentType cpuCFSQuota
	cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions cpuManagerReconcilePeriod crashLoopBackOff defaultPodSysctls
	enableContentionProfiling enableControllerAttachDetach enforceNodeAllocatable eventBurst eventRecordQPS failCgroupV1 failSwapOn
	featureGates fileCheckFrequency hairpinMode healthzBindAddress httpCheckFrequency imagePullCredentialsVerificationPolicy
	imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit kernelMemcgNotification kubeAPIBurst kubeAPIQPS kubeReservedCgroup
	kubeletCgroups localStorageCapacityIsolation logging makeIPTablesUtilChains maxOpenFiles memoryManagerPolicy
	memoryReservationPolicy memorySwap memoryThrottlingFactor nodeStatusMaxImages oomScoreAdj podCIDR podPidsLimit
	preloadedImagesVerificationAllowlist protectKernelDefaults qosReserved registryBurst registryPullQPS reservedMemory
	reservedSystemCPUs resolvConf runOnce runtimeRequestTimeout seccompDefault serializeImagePulls showHiddenMetricsForVersion
	singleProcessOOMKill staticPodURLHeader syncFrequency systemCgroups systemReservedCgroup tlsCipherSuites tlsCurvePreferences
	tlsMinVersion topologyManagerPolicyOptions tracing userNamespaces volumePluginDir volumeStatsAggPeriod
`

// Unsupported returns the sorted names of the KubeletConfiguration fields that the type Configuration does not have.
func Unsupported() []string { return strings.Fields(unsupportedFields) }
