"""The names of feature gates, to tell misspelled ones from others, and with which of them a kubelet does not start.

From the help of kubelet 1.36.2 and the list of gates in the source of Kubernetes 1.36
(`test/compatibility_lifecycle/reference`), with those of older and newer versions that the replay reads.

What a kubelet does with a gate that it does not know: it does not start ("unrecognized feature gate"). The kubelet of
OpenShift logs a warning and ignores it.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from extender.kubelet.rules import gate_fault

_MAX_NAME: Final = 80
_NAMES: Final = """
    APIResponseCompression APIServerIdentity APIServerTracing+ APIServingWithRoutine AggregatedDiscoveryRemoveBetaType+
    AllAlpha AllBeta AllowDNSOnlyNodeCSR AllowInsecureKubeletCertificateSigningRequests
    AllowOverwriteTerminationGracePeriodSeconds- AllowParsingUserUIDFromCertAuth AllowServiceExternalIPs
    AllowUnsafeMalformedObjectDeletion AnonymousAuthConfigurableEndpoints+ AnyVolumeDataSource+ AtomicFIFO
    AuthorizeNodeWithSelectors+ AuthorizePodWebsocketUpgradeCreatePermission AuthorizeWithSelectors+ BtreeWatchCache+
    CBORServingAndStorage CPUCFSQuotaPeriod CPUManager CPUManagerPolicyAlphaOptions CPUManagerPolicyBetaOptions
    CPUManagerPolicyOptions CRDObservedGenerationTracking CRDValidationRatcheting+ CRIListStreaming
    CSIServiceAccountTokenSecrets+ CSIVolumeHealth ChangeContainerStatusOnKubeletRestart
    ClearingNominatedNodeNameAfterBinding ClientsAllowCARotation ClientsAllowCBOR ClientsAllowTLSCacheGC
    ClientsPreferCBOR CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
    ClusterTrustBundle ClusterTrustBundleProjection ComponentFlagz ComponentStatusz ConcurrentWatchObjectDecode
    ConsistentListFromCache+ ConstrainedImpersonation ContainerCheckpoint ContainerRestartRules ContainerStopSignals
    ContextualLogging ControllerManagerReleaseLeaderElectionLockOnExit CoordinatedLeaderElection
    CrossNamespaceVolumeDataSource CustomResourceFieldSelectors+ DRAAdminAccess+ DRAConsumableCapacity
    DRADeviceBindingConditions DRADeviceTaintRules DRADeviceTaints DRAExtendedResource DRAListTypeAttributes
    DRANodeAllocatableResources DRAPartitionableDevices DRAPrioritizedList DRAResourceClaimDeviceStatus
    DRAResourceClaimGranularStatusAuthorization DRAResourcePoolStatus DRASchedulerFilterTimeout
    DRAWorkloadResourceClaims DeclarativeValidation+ DeclarativeValidationBeta DeclarativeValidationTakeover
    DeploymentReplicaSetTerminatingReplicas DetectCacheInconsistency DisableAllocatorDualWrite+
    DisableCPUQuotaWithExclusiveCPUs DisableNodeKubeProxyVersion+ DynamicResourceAllocation EnvFiles EventedPLEG
    ExecProbeTimeout+ ExtendWebSocketsToKubelet ExternalServiceAccountTokenSigner+ GangScheduling GenericWorkload
    GitRepoVolumeDriver- GracefulNodeShutdown GracefulNodeShutdownBasedOnPodPriority HPAConfigurableTolerance
    HPAScaleToZero HostnameOverride HugepageAwareEviction ImageMaximumGCAge+ ImageVolume+ ImageVolumeWithDigest
    InOrderInformersBatchProcess InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling
    InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory
    InPlacePodVerticalScalingInitContainers JobBackoffLimitPerIndex+ JobManagedBy+ JobPodReplacementPolicy+
    JobSuccessPolicy+ KMSv1 KubeletAllocatedPodsEndpoint KubeletCgroupDriverFromCRI+ KubeletCrashLoopBackOffMax
    KubeletEnsureSecretPulledImages KubeletFineGrainedAuthz+ KubeletInUserNamespace KubeletPSI+
    KubeletPodResourcesDynamicResources+ KubeletPodResourcesGet+ KubeletPodResourcesListUseActivePods
    KubeletRegistrationGetOnExistsOnly KubeletSeparateDiskGC KubeletServiceAccountTokenForCredentialProviders
    KubeletTracing+ ListFromCacheSnapshot LocalStorageCapacityIsolationFSQuotaMonitoring LogarithmicScaleDown+
    LoggingAlphaOptions LoggingBetaOptions ManifestBasedAdmissionControlConfig MatchLabelKeysInPodAffinity+
    MatchLabelKeysInPodTopologySpread MatchLabelKeysInPodTopologySpreadSelectorMerge MaxUnavailableStatefulSet
    MemoryManager MemoryQoS MultiCIDRServiceAllocator+ MutableCSINodeAllocatableCount+ MutablePVNodeAffinity
    MutablePodResourcesForSuspendedJobs MutableSchedulingDirectivesForSuspendedJobs MutatingAdmissionPolicy
    NFTablesProxyMode+ NativeHistograms NodeDeclaredFeatures NodeInclusionPolicyInPodTopologySpread+ NodeLogQuery+
    NodeSwap+ NominatedNodeNameForExpectation OpenAPIEnums OpportunisticBatching OrderedNamespaceDeletion+
    PLEGOnDemandRelist PersistentVolumeClaimUnusedSinceTime PodAndContainerStatsFromCRI PodCertificateRequest
    PodDeletionCost PodLevelResourceManagers PodLevelResources PodLevelResourcesFixDefaulting
    PodLevelResourcesFixKubeletQOSClass PodLifecycleSleepAction+ PodLifecycleSleepActionAllowZero+
    PodLogsQuerySplitStreams PodObservedGenerationTracking+ PodReadyToStartContainersCondition PodSchedulingReadiness+
    PodTopologyLabelsAdmission PodsAPI PortForwardWebsockets PreferSameTrafficDistribution+
    PreventStaticPodAPIReferences ProcMountType+ QOSReserved RecoverVolumeExpansionFailure+ RecursiveReadOnlyMounts+
    ReduceDefaultCrashLoopBackOffDecay RelaxedDNSSearchValidation+ RelaxedEnvironmentVariableValidation+
    RelaxedServiceNameValidation ReloadKubeletClientCAFile ReloadKubeletServerCertificateFile RemoteRequestHeaderUID
    ResilientWatchCacheInitialization+ ResourceHealthStatus ResourceHealthStatusMessage
    RestartAllContainersOnContainerExits RetryGenerateName+ RotateKubeletServerCertificate RuntimeClassInImageCriAPI
    SELinuxChangePolicy+ SELinuxMount SELinuxMountReadWriteOncePod+ SchedulerAsyncAPICalls SchedulerAsyncPreemption
    SchedulerPopFromBackoffQ SchedulerQueueingHints+ SeparateCacheWatchRPC- SeparateTaintEvictionController+
    ServiceAccountNodeAudienceRestriction ServiceAccountTokenJTI+ ServiceAccountTokenNodeBinding+
    ServiceAccountTokenNodeBindingValidation+ ServiceAccountTokenPodNodeInfo+ ServiceCIDRStatusFieldWiping
    ShardedListAndWatch SidecarContainers SizeBasedListCostEstimate StaleControllerConsistencyDaemonSet
    StaleControllerConsistencyJob StaleControllerConsistencyReplicaSet StaleControllerConsistencyStatefulSet
    StatefulSetSemanticRevisionComparison StorageCapacityScoring StorageNamespaceIndex StorageVersionAPI
    StorageVersionHash StorageVersionMigrator StreamingCollectionEncodingToJSON+ StreamingCollectionEncodingToProtobuf+
    StrictIPCIDRValidation StructuredAuthenticationConfiguration+ StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics SupplementalGroupsPolicy+ SystemdWatchdog+
    TaintTolerationComparisonOperators TokenRequestServiceAccountUIDValidation TopologyAwareWorkloadScheduling
    TopologyManager TopologyManagerPolicyAlphaOptions TopologyManagerPolicyBetaOptions TopologyManagerPolicyOptions
    TranslateStreamCloseWebsocketRequests UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
    UnlockWhileProcessingFIFO UserNamespacesHostNetworkSupport UserNamespacesSupport+ VolumeAttributesClass+
    VolumeLimitScaling WatchCacheInitializationPostStartHook WatchList WatchListClient WinDSR+ WinOverlay+
    WindowsCPUAndMemoryAffinity WindowsGracefulNodeShutdown WindowsHostNetwork WorkloadAwarePreemption WorkloadWithJob
"""
"""+ and -: kubelet 1.36.2 has locked the gate on or off. When older ones did so is not known."""
KNOWN_GATES: Final = frozenset(name.rstrip("+-") for name in _NAMES.split())
_LOCKED: Final = {name[:-1]: name[-1] == "+" for name in _NAMES.split() if name[-1] in "+-"}
_LOCKED_SINCE: Final = 36
_NEEDED_BY: Final = {
    "ContainerRestartRules": ("RestartAllContainersOnContainerExits",),
    "DRAResourceClaimDeviceStatus": ("DRADeviceBindingConditions",),
    "GracefulNodeShutdown": ("GracefulNodeShutdownBasedOnPodPriority",),
    "NodeDeclaredFeatures": (
        "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
        "ExtendWebSocketsToKubelet", "RestartAllContainersOnContainerExits",
    ),
    "PodLevelResources": ("InPlacePodLevelResourcesVerticalScaling",),
    "ResourceHealthStatus": ("ResourceHealthStatusMessage",),
}  # fmt: skip
"""Gates that are on by default from 1.36 on, and without which they must be off."""


def start_fault(gate: str, minor: int, gates: Mapping[str, bool]) -> str | None:
    """The error with which a kubelet does not start because of one of its *gates*; None: none is known."""
    is_on = gates[gate]
    if minor >= _LOCKED_SINCE and _LOCKED.get(gate, is_on) is not is_on:
        return f"cannot set feature gate {gate} to {str(is_on).lower()}, feature is locked to {str(not is_on).lower()}"
    if minor >= _LOCKED_SINCE and not is_on:
        for other in _NEEDED_BY.get(gate, ()):
            if gates.get(other, gates.get("AllBeta", True)):
                return f"{other} is enabled, but depends on features that are disabled: [{gate}]"
    return gate_fault(gate, minor, is_on=is_on)


def unknown_gates(gates: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The gates among *gates* whose names are not known, each with the name that is probably meant, or ""."""
    for gate in sorted(set(gates) - KNOWN_GATES):
        close = difflib.get_close_matches(gate[:_MAX_NAME], KNOWN_GATES, n=1, cutoff=0.85)
        yield gate, close[0] if close else ""
