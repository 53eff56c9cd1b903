"""For every rule about kubelets: a configuration that trips it, and the same one mended."""

from tests.lint.building import GONE, Case, case, kubelet, scheduler

PERCENT = {"memory.available": "5%"}
KUBELET = {
    "kubelet-api-version": [case(kubelet(apiVersion="v1"), kubelet())],
    "kubelet-field-misspelled": [
        case(kubelet(topologyManagerPolicy=GONE, topologymanagerpolicy="restricted"), kubelet()),
        case(kubelet(cpuManagerPolicyOption={}), kubelet(cpuManagerPolicyOptions={}, containerLogMaxSize="1Mi")),
        case(kubelet(reservedMemorys=[], reservedMemory=GONE), kubelet(evictionSoft={}, systemReservedCgroup="/a")),
    ],
    "kubelet-value-invalid": [
        case(kubelet(systemReserved={"memory": "1 Gi"}), kubelet()),
        case(kubelet(reservedSystemCPUs="a-b"), kubelet(reservedSystemCPUs="0-1,300")),
        case(kubelet(featureGates={"MemoryManager": "yes"}), kubelet(featureGates={"MemoryManager": True})),
        case(kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "x"}}]), kubelet()),
    ],
    "kubelet-does-not-start": [
        case(kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}]), kubelet()),
        case(kubelet(systemReserved={"cpu": GONE}, kubeReserved={"cpu": GONE}), kubelet(kubeReserved={"cpu": GONE})),
        case(kubelet(topologyManagerPolicy="single"), kubelet()),
        case(
            kubelet(cpuManagerPolicyOptions={"align-by-socket": "true"}, topologyManagerPolicy="restricted"),
            kubelet(
                cpuManagerPolicyOptions={"align-by-socket": "true"},
                topologyManagerPolicy="restricted",
                featureGates={"CPUManagerPolicyAlphaOptions": True},
            ),
        ),
        case(kubelet(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "4"}), kubelet()),
        Case(
            (kubelet(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "16"}),),
            (kubelet(),),
            kubelet="v1.30.4",
        ),
        case(
            kubelet(cpuManagerPolicy="none", cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
            kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
        ),
        case(
            kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi", "hugepages-1Gi": "1Gi"}}]),
            kubelet(reservedMemory=[{"numaNode": 0, "limits": {"memory": "2Gi"}}]),
        ),
    ],
    "kubelet-newer-than-known": [Case((kubelet(),), (scheduler(),), kubelet="v1.99.0")],
    "topology-without-static-cpu": [
        case(kubelet(cpuManagerPolicy="none"), kubelet(cpuManagerPolicy="none", topologyManagerPolicy="none")),
    ],
    "static-cpu-without-topology": [case(kubelet(topologyManagerPolicy="none"), kubelet())],
    "prefer-closest-no-effect": [
        case(
            kubelet(topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"}),
            kubelet(
                topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"}, topologyManagerPolicy="restricted"
            ),
        )
    ],
    "topology-options-ignored": [
        case(
            kubelet(topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true"}, topologyManagerPolicy="none"),
            kubelet(topologyManagerPolicy="none"),
        )
    ],
    "memory-without-topology": [case(kubelet(topologyManagerPolicy="none"), kubelet())],
    "memory-groups": [
        case(kubelet(topologyManagerPolicy="restricted"), kubelet()),
        case(
            kubelet(topologyManagerPolicy="best-effort"),
            kubelet(topologyManagerPolicy="restricted", memoryManagerPolicy="None", reservedMemory=GONE),
        ),
    ],
    "best-effort-refuses": [
        case(kubelet(topologyManagerPolicy="best-effort"), kubelet(topologyManagerPolicy="restricted")),
    ],
    "full-pcpus-only": [
        case(
            kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
            kubelet(cpuManagerPolicyOptions={"full-pcpus-only": "false"}),
        )
    ],
    "reserved-cpus-override": [
        case(
            kubelet(reservedSystemCPUs="0,64"),
            kubelet(reservedSystemCPUs="0,64", systemReserved={"cpu": GONE}, kubeReserved={"cpu": GONE}),
        )
    ],
    "reserved-cpu-fraction": [
        case(
            kubelet(kubeReserved={"cpu": "500m"}), kubelet(kubeReserved={"cpu": "500m"}, systemReserved={"cpu": "1.5"})
        ),
        case(kubelet(kubeReserved={"cpu": "60m"}), kubelet(kubeReserved={"cpu": "60m"}, reservedSystemCPUs="0")),
    ],
    "eviction-percent": [
        case(kubelet(evictionHard=PERCENT), kubelet()),
        case(
            kubelet(evictionHard=PERCENT),
            kubelet(evictionHard=PERCENT, memoryManagerPolicy="None", reservedMemory=GONE),
        ),
    ],
    "reserved-memory-unused": [case(kubelet(memoryManagerPolicy="None"), kubelet())],
    "kubelet-gate": [
        Case(
            (kubelet(featureGates={"SidecarContainers": True}),),
            (kubelet(featureGates={"PodLevelResourcesFixKubeletQOSClass": False, "DRAExtendedResource": True}),),
            kubelet="v1.37.0",
        ),
        Case(
            (kubelet(featureGates={"DRAExtendedResource": False}),),
            (kubelet(featureGates={"DRAExtendedResource": True, "PodLevelResourceManagers": False}),),
            kubelet="v1.38.0-alpha.2",
        ),
        Case(
            (kubelet(featureGates={"PodLevelResourcesFixKubeletQOSClass": True}),),
            (
                kubelet(
                    featureGates={"DRAExtendedResource": False, "SidecarContainers": True, "ContextualLogging": True}
                ),
            ),
            kubelet="v1.36.2",
        ),
        Case(
            (kubelet(featureGates={"MemoryManager": False}),),
            (kubelet(featureGates={"MemoryManager": True, "SidecarContainers": False}),),
            kubelet="v1.32.4",
        ),
        Case(
            (kubelet(featureGates={"TopologyManager": False}),),
            (kubelet(featureGates={"TopologyManager": True}),),
            kubelet="v1.28.0",
        ),
        Case(
            (kubelet(featureGates={"TopologyManager": True}),),
            (kubelet(featureGates={"MemoryManager": True, "CPUManager": True}),),
            kubelet="v1.30.0",
        ),
        Case(
            (kubelet(featureGates={"MemoryManager": True}),),
            (kubelet(featureGates={"SidecarContainers": True}),),
            kubelet="v1.36.2",
        ),
    ],
    "kubelet-gate-unknown": [
        case(
            kubelet(featureGates={"CPUManagerPolicyAlphaOption": True}),
            kubelet(featureGates={"CPUManagerPolicyAlphaOptions": True, "GracefulNodeShutdown": True}),
        ),
        case(kubelet(featureGates={"OfSomebody": True}), kubelet()),
    ],
    "memory-manager-gate": [
        Case(
            (kubelet(featureGates={"MemoryManager": False}),),
            (kubelet(featureGates={"MemoryManager": True}),),
            kubelet="v1.31.0",
        )
    ],
    "cpu-reconcile-slow": [
        case(kubelet(cpuManagerReconcilePeriod="5m"), kubelet(cpuManagerReconcilePeriod="10s")),
    ],
}
