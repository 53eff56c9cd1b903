"""For every rule about the NRI topology-aware policy: a document that trips it, and the same one mended."""

from tests.lint.building import Case, as_yaml, case, changed, daemonset, exporter_env, kubelet

SUFFIX = ".resource-policy.nri.io"


def annotated(annotations: dict[str, str]) -> str:
    """A Deployment whose pods have these annotations."""
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    return as_yaml({"kind": "Deployment", "spec": {"template": template}})


def for_pod(name: str, text: str) -> str:
    return annotated({f"{name}{SUFFIX}/pod": text})


def strict_hint(numas: str) -> str:
    hint = f"a: {{provider: x, numas: '{numas}'}}"
    return annotated({f"strict.topologyhints{SUFFIX}/pod": "true", f"test.topologyhints{SUFFIX}/pod": hint})


def policy(**changes: object) -> str:
    """A TopologyAwarePolicy."""
    spec = {"pinCPU": True, "reservedResources": {"cpu": "750m"}, "agent": {"nodeResourceTopology": True}}
    document = {"apiVersion": "config.nri/v1alpha1", "kind": "TopologyAwarePolicy", "spec": changed(spec, changes)}
    return as_yaml(document)


def reserving(cpu: str, **changes: object) -> str:
    return policy(reservedResources={"cpu": cpu}, **changes)


NRI = {
    "nri-annotation-ignored": [
        case(for_pod("prefer-shared-cpu", "true"), for_pod("prefer-shared-cpus", "true")),
        case(for_pod("memory-type", "ddr"), for_pod("memory-type", "dram")),
    ],
    "nri-annotation-refused": [
        case(for_pod("cold-start", "often"), for_pod("cold-start", "duration: 60s")),
        case(
            annotated({"resource-policy.nri.io/affinity": "x"}),
            annotated({"resource-policy.nri.io/affinity": "app: [app]"}),
        ),
    ],
    "nri-annotation-crash": [case(strict_hint("99"), strict_hint("0"))],
    "nri-config-invalid": [
        case(policy(unlimitedBurstable="socket"), policy(unlimitedBurstable="numa")),
        case(reserving("cpuset:0-x"), reserving("cpuset:0-1")),
        case(reserving("lots"), reserving("2")),
        case(policy(availableResources={"cpu": "12"}), policy(availableResources={"cpu": "cpuset:0-11"})),
        case(reserving("cpuset:12", availableResources={"cpu": "cpuset:0-11"}), reserving("cpuset:0-1")),
        case("kind: TopologyAwarePolicy\n", policy()),
    ],
    "nri-field-misspelled": [case(policy(pinCpu=True), policy(pinMemory=True))],
    "nri-namespace-pattern": [
        case(policy(reservedPoolNamespaces=["a", "[a-"]), policy(reservedPoolNamespaces=["a", "[a-c]*"])),
    ],
    "nri-zones-off": [case(policy(agent={"nodeResourceTopology": False}), policy())],
    "nri-unlimited-burstable": [case(policy(unlimitedBurstable="numa"), policy())],
    "nri-static-cpu": [
        Case((kubelet(), policy()), (kubelet(cpuManagerPolicy="none"), policy())),
        Case((kubelet(), policy()), (kubelet(), policy(pinCPU=False))),
    ],
    "nri-reserves-more": [
        Case((kubelet(), reserving("3")), (kubelet(), reserving("2"))),
        Case((kubelet(reservedSystemCPUs="0"), reserving("cpuset:0-1")), (kubelet(), reserving("cpuset:0-1"))),
    ],
    "nri-grants-unread": [
        case(
            daemonset(env=exporter_env(NUMA_NRI_NAMESPACE="kube-system")),
            daemonset(
                env=exporter_env(NUMA_NRI_NAMESPACE="kube-system"),
                volumeMounts=[{"name": "nri", "mountPath": "/var/lib/nri-resource-policy"}],
            ),
        )
    ],
}
