// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

// gateTable lists the feature gates that the kubelet 1.37 knows, sorted by name: its own and those of the libraries in its binary. The columns are
// name, stage, default, lock, state here, and the gates that must be on for this gate. States: supported, default (only the
// default is accepted), none (without effect). Sources: pkg/features/kube_features.go, and the packages features of
// k8s.io/apiserver, k8s.io/client-go, k8s.io/component-base and k8s.io/apiextensions-apiserver.
const gateTable = `
APIResponseCompression beta on - none
APIServerIdentity beta on - none
APIServerWebhookAuthenticationToken alpha off - none
APIServingWithRoutine alpha off - none
AggregatedDiscoveryRemoveBetaType deprecated on locked default
AllAlpha alpha off - default
AllBeta beta off - default
AllowDNSOnlyNodeCSR deprecated off - default
AllowInsecureKubeletCertificateSigningRequests deprecated off - none
AllowOverwriteTerminationGracePeriodSeconds deprecated off locked default
AllowParsingUserUIDFromCertAuth beta on - supported
AllowServiceExternalIPs GA on - none
AllowUnsafeMalformedObjectDeletion beta on - none
AtomicFIFO beta on - none
AtomicWriteVolumeUserFields alpha off - default
AuthorizePodWebsocketUpgradeCreatePermission beta on - none
CBORServingAndStorage alpha off - none
CPUManagerPolicyAlphaOptions alpha off - supported
CPUManagerPolicyBetaOptions beta on - default
CPUManagerPolicyOptions GA on locked supported
CRDObservedGenerationTracking beta on - none
CRDValidationRatcheting GA on locked default
CRIListStreaming alpha off - default
CSIServiceAccountTokenSecrets GA on locked default
CSIVolumeHealth alpha off - default
ChangeContainerStatusOnKubeletRestart deprecated off - default
ClearingNominatedNodeNameAfterBinding beta on - none
ClientsAllowCARotation beta on - none
ClientsAllowCBOR alpha off - none
ClientsAllowTLSCacheGC beta on - none
ClientsPreferCBOR alpha off - none
CloudControllerManagerWatchBasedRoutesReconciliation alpha off - none
CloudControllerManagerWebhook alpha off - none
ClusterTrustBundle GA on - none
ClusterTrustBundleProjection GA on - supported ClusterTrustBundle
ComponentFlagz beta on - default
ComponentStatusz beta on - default
CompositePodGroup alpha off - none GenericWorkload TopologyAwareWorkloadScheduling
ConcurrentWatchObjectDecode beta on - none
ConsistentListFromCacheSkipTimeoutFallback alpha off - none
ConstrainedImpersonation beta on - none
ContainerCheckpoint beta on - default
ContainerRestartRules beta on - supported
ContainerStopSignals alpha off - default
ContextualLogging beta on - none
ControllerManagerReleaseLeaderElectionLockOnExit alpha off - none
CoordinatedLeaderElection beta off - none
CrossNamespaceVolumeDataSource alpha off - none
CustomCPUCFSQuotaPeriod GA on - default
CustomResourceFieldSelectors GA on locked default
DRAAdminAccess GA on locked default DynamicResourceAllocation
DRAConsumableCapacity beta on - none DynamicResourceAllocation
DRADerivedAttributes alpha off - none DynamicResourceAllocation
DRADeviceBindingConditions beta on - none DRAResourceClaimDeviceStatus DynamicResourceAllocation
DRADeviceCompatibilityGroups alpha off - none DRAPartitionableDevices DynamicResourceAllocation
DRADeviceTaintRules GA on - none DRADeviceTaints
DRADeviceTaints GA on - none DynamicResourceAllocation
DRAExtendedResource GA on locked default DynamicResourceAllocation
DRAFractionalCapacityRange beta off - none DRAConsumableCapacity
DRAListTypeAttributes alpha off - none DynamicResourceAllocation
DRANodeAllocatableResources alpha off - default DynamicResourceAllocation
DRAOptionalNodeOperations alpha off - default DynamicResourceAllocation NodeDeclaredFeatures
DRAPartitionableDevices beta on - none DynamicResourceAllocation
DRAPartitionableDevicesType alpha off - none DRAPartitionableDevices DRAResourcePoolStatus DynamicResourceAllocation
DRAPrioritizedList GA on locked default DynamicResourceAllocation
DRAResourceClaimDeviceStatus GA on locked default
DRAResourceClaimGranularStatusAuthorization beta on - none DRAResourceClaimDeviceStatus DynamicResourceAllocation
DRAResourcePoolStatus alpha off - none DynamicResourceAllocation
DRASchedulerFilterTimeout beta on - none DynamicResourceAllocation
DRAWorkloadResourceClaims beta off - default DynamicResourceAllocation GenericWorkload
DeclarativeValidation GA on locked default
DeclarativeValidationBeta beta on - none DeclarativeValidation
DeclarativeValidationTakeover deprecated off locked default DeclarativeValidation
DefaultPodSysctls alpha off - default
DeploymentReplicaSetTerminatingReplicas beta on - none
DetectCacheInconsistency beta on - none
DisableAllocatorDualWrite GA on locked default MultiCIDRServiceAllocator
DisableCPUQuotaWithExclusiveCPUs deprecated on locked default
DisableNodeKubeProxyVersion deprecated on locked default
DynamicResourceAllocation GA on locked default
EmptyDirVolumeMode alpha off - default
EnvFiles beta on - supported
EtcdRangeStream beta on - none
EventedPLEG alpha off - default PLEGOnDemandRelist
EvictionRequestAPI alpha off - none
ExcludeAdmissionWebhookVirtualResources beta on - none
ExecProbeTimeout GA on locked default
ExtendWebSocketsToKubelet beta on - supported NodeDeclaredFeatures
ExternalServiceAccountTokenSigner GA on locked default
GRPCContainerProbeTLS alpha off - default
GenericWorkload beta off - none
GitRepoVolumeDriver deprecated off locked default
GracefulNodeShutdown beta on - supported
GracefulNodeShutdownBasedOnPodPriority beta on - supported GracefulNodeShutdown
H2CContainerProbe alpha off - default NodeDeclaredFeatures
HPAConfigurableTolerance GA on locked default
HPAGeneration beta on - none
HPAOptimizedSelectorStore beta on - none
HPAScaleToZero beta on - none
HostnameOverride GA on locked default
HugepageAwareEviction beta on - default
ImageMaximumGCAge GA on locked default
ImageVolume GA on locked default
ImageVolumeWithDigest alpha off - default ImageVolume
InOrderInformers GA on locked default
InOrderInformersBatchProcess beta on - none
InPlacePodLevelResourcesVerticalScaling beta on - supported InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources
InPlacePodVerticalScaling GA on locked default
InPlacePodVerticalScalingExclusiveCPUs alpha off - supported InPlacePodVerticalScaling
InPlacePodVerticalScalingExclusiveMemory alpha off - supported InPlacePodVerticalScaling
InPlacePodVerticalScalingInitContainers GA on locked default InPlacePodVerticalScaling NodeDeclaredFeatures
InPlacePodVerticalScalingMemoryBackedVolumes alpha off - default InPlacePodVerticalScaling NodeDeclaredFeatures
InPlacePodVerticalScalingSchedulerPreemption alpha off - default InPlacePodVerticalScaling
InformerResourceVersion GA on - none
InterPodAffinityHostnameFastPath alpha off - none
JobManagedBy GA on locked default
KMSv1 deprecated off - none
KubeProxyIPVS deprecated on - none
KubeProxyNFTablesLocalhostNodePorts alpha off - none
KubeletAllocatedPodsEndpoint alpha off - default InPlacePodVerticalScaling
KubeletCgroupDriverFromCRI GA on locked default
KubeletCrashLoopBackOffMax beta on - default
KubeletEnsureSecretPulledImages beta on - supported
KubeletFineGrainedAuthz GA on locked default
KubeletInUserNamespace beta on - default
KubeletPSI GA on locked default
KubeletPodResourcesDynamicResources GA on locked default
KubeletPodResourcesGet GA on locked default
KubeletPodResourcesListUseActivePods deprecated on - default
KubeletRegistrationGetOnExistsOnly deprecated off - default
KubeletSeparateDiskGC beta on - default
KubeletServiceAccountTokenForCredentialProviders beta on - supported
KubeletTracing GA on locked default
ListFromCacheSnapshot beta on - none
LocalStorageCapacityIsolationFSQuotaMonitoring beta off - default
LoggingAlphaOptions alpha off - none
LoggingBetaOptions beta on - none
ManifestBasedAdmissionControlConfig beta on - none
MatchLabelKeysInPodAffinity GA on locked default
MatchLabelKeysInPodTopologySpread beta on - none
MatchLabelKeysInPodTopologySpreadSelectorMerge beta on - none MatchLabelKeysInPodTopologySpread
MaxUnavailableStatefulSet beta on - none
MemoryQoS beta on - default
MultiCIDRServiceAllocator GA on locked default
MutableCSINodeAllocatableCount GA on locked default
MutablePVNodeAffinity alpha off - none
MutablePodResourcesForSuspendedJobs beta on - none
MutableSchedulingDirectivesForSuspendedJobs beta on - none
MutatingAdmissionPolicy GA on - none
NFTablesNetlink beta on - none
NFTablesProxyMode GA on locked default
NativeHistograms beta on - default
NodeControllerLeaseCircuitBreaker beta on - none AtomicFIFO
NodeDeclaredFeatures GA on locked default
NodeInclusionPolicyInPodTopologySpread GA on locked default
NodeLifecycleConditions alpha off - default
NodeLogQuery GA on locked default
NodeSwap GA on locked default
NominatedNodeNameForExpectation beta on - none
OpenAPIEnums beta on - none
OpportunisticBatching beta on - none
PLEGOnDemandRelist GA on locked default
PersistentVolumeClaimUnusedSinceTime beta on - none
PodAndContainerStatsFromCRI beta off - default
PodCertificateRequest GA on - supported
PodDeletionCost beta on - none
PodGroupPreemptionPolicy alpha off - none GenericWorkload
PodLevelResourceManagers beta off - supported PodLevelResources
PodLevelResources beta on - supported
PodLevelResourcesFixDefaulting beta on - default PodLevelResources
PodLevelResourcesFixKubeletQOSClass beta on - supported PodLevelResources
PodLogsQuerySplitStreams alpha off - default
PodObservedGenerationTracking GA on locked default
PodReadyToStartContainersCondition GA on locked default
PodSchedulingReadiness GA on locked default
PodTopologyLabelsAdmission beta on - none
PodsAPI beta on - supported
PortForwardWebsockets beta on - none
PreferSameTrafficDistribution GA on locked default
ProcMountType GA on locked default UserNamespacesSupport
QOSReserved alpha off - default
RecoverVolumeExpansionFailure GA on locked default
RecursiveReadOnlyMounts GA on locked default
ReduceDefaultCrashLoopBackOffDecay alpha off - default
RelaxedEnvironmentVariableValidation GA on locked default
RelaxedServiceNameValidation GA on locked default
ReloadKubeletClientCAFile beta on - default
ReloadKubeletServerCertificateFile beta on - default
RemoteRequestHeaderUID beta on - none
ResourceHealthStatus beta on - default DynamicResourceAllocation
ResourceHealthStatusMessage beta on - default ResourceHealthStatus
RestartAllContainersOnContainerExits beta on - supported ContainerRestartRules NodeDeclaredFeatures
RotateKubeletServerCertificate beta on - supported
RuntimeClassInImageCriApi alpha off - default
SELinuxChangePolicy GA on locked default
SELinuxMount GA on - default
SELinuxMountReadWriteOncePod GA on locked default
SchedulerAsyncAPICalls beta off - none
SchedulerAsyncPreemption beta on - none
SchedulerPopFromBackoffQ beta on - none
SchedulerPreQueueingHints alpha off - none
SeparateCacheWatchRPC deprecated off locked default
SeparateTaintEvictionController GA on locked default
ServiceAccountNodeAudienceRestriction beta on - none
ServiceAccountTokenJTI GA on locked default
ServiceAccountTokenNodeBinding GA on locked default ServiceAccountTokenNodeBindingValidation
ServiceAccountTokenNodeBindingValidation GA on locked default
ServiceAccountTokenPodNodeInfo GA on locked default
ServiceCIDRStatusFieldWiping deprecated on - none
ShardedListAndWatch alpha off - none
SizeBasedListCostEstimate beta on - none
StaleControllerConsistencyDaemonSet beta on - none AtomicFIFO
StaleControllerConsistencyHPA beta on - none AtomicFIFO
StaleControllerConsistencyJob beta on - none AtomicFIFO
StaleControllerConsistencyReplicaSet beta on - none AtomicFIFO
StaleControllerConsistencyStatefulSet beta on - none AtomicFIFO
StatefulSetRecreateStrategy alpha off - none
StatefulSetSemanticRevisionComparison beta on - none
StorageCapacityScoring beta on - none
StorageNamespaceIndex deprecated on - none
StorageVersionAPI alpha off - none APIServerIdentity
StorageVersionHash beta on - none
StorageVersionMigrator GA on - none
StrictIPCIDRValidation beta on - none
StructuredAuthenticationConfigurationEgressSelector beta on - none
StructuredAuthenticationConfigurationJWKSMetrics beta on - none
SupplementalGroupsPolicy GA on locked default
SystemdWatchdog GA on locked default
TaintTolerationComparisonOperators alpha off - default
TokenRequestServiceAccountUIDValidation beta on - none
TopologyAwareWorkloadScheduling alpha off - none GenericWorkload
TopologyManagerPolicyAlphaOptions alpha off - none
TopologyManagerPolicyBetaOptions beta on - none
TopologyManagerPolicyOptions GA on locked supported
TranslateStreamCloseWebsocketRequests beta on - none
UnauthenticatedHTTP2DOSMitigation beta on - none
UnknownVersionInteroperabilityProxy beta on - none APIServerIdentity
UnlockWhileProcessingFIFO beta on - none
UserNamespacesHostNetworkSupport alpha off - default NodeDeclaredFeatures UserNamespacesSupport
UserNamespacesSupport GA on locked default
VolumeAttributesClass GA on locked default
VolumeBindMountOptions alpha off - default
VolumeLimitScaling beta on - default
WatchCacheInitializationPostStartHook GA on locked default
WatchList beta on - none
WatchListClient beta on - default
WatchListCompression beta on - none
WebhookRoundTripLoadBalancing beta on - none
WinDSR GA on locked default
WinOverlay GA on locked default
WindowsCPUAndMemoryAffinity alpha off - none
WindowsGracefulNodeShutdown beta on - none GracefulNodeShutdown
WindowsHostNetwork deprecated off - none
WorkloadWithJob alpha off - none GenericWorkload
`
