"""For every rule about demands for alignment: a manifest that has the problem, and the same one mended."""

from tests.lint.building import as_yaml, case

KEY = "numa-extender.io/alignment"


def demanding(annotations: dict[str, str], *, cpu: str = "4", on_workload: bool = False) -> str:
    """A Deployment of Guaranteed pods."""
    limits = {"cpu": cpu, "memory": "1Gi"}
    spec = {"containers": [{"name": "app", "image": "x", "resources": {"limits": limits}}]}
    template = {"metadata": {} if on_workload else {"annotations": annotations}, "spec": spec}
    metadata = {"name": "a", **({"annotations": annotations} if on_workload else {})}
    return as_yaml({"kind": "Deployment", "metadata": metadata, "spec": {"template": template}})


def namespace(labels: dict[str, str]) -> str:
    return as_yaml({"kind": "Namespace", "metadata": {"name": "n", "labels": labels}})


GOOD = {KEY: "single-numa-node"}
DEMANDS = {
    "demand-value": [
        case(demanding({KEY: "single-numa"}), demanding(GOOD)),
        case(
            demanding({"numa-extender.io/memory": "local"}), demanding({"numa-extender.io/memory": "no-remote-memory"})
        ),
        case(namespace({KEY: "strict"}), namespace({KEY: "same-socket"})),
        case(demanding({f"{KEY}-resources": "cpus"}), demanding({f"{KEY}-resources": "cpu,memory"})),
        case(demanding({f"{KEY}.no-such": "none"}), demanding({f"{KEY}.app": "single-numa-node"})),
    ],
    "demand-key": [
        case(demanding({"numa-extender.io/aligment": "none"}), demanding({KEY: "none"})),
        case(namespace({"numa-extender.io/scope": "pod"}), namespace({"numa-extender.io/alignment-scope": "pod"})),
    ],
    "group-size": [
        case(demanding({"numa-extender.io/group-size": "all"}), demanding({"numa-extender.io/group-size": "8"})),
        case(demanding({"numa-extender.io/group-size": "0"}), demanding({"numa-extender.io/group-size": "2"})),
    ],
    "demand-misplaced": [case(demanding(GOOD, on_workload=True), demanding(GOOD))],
    "demand-unplaced": [
        case(demanding(GOOD, cpu="500m"), demanding(GOOD, cpu="2")),
        case(demanding(GOOD, cpu="500m"), demanding({KEY: "preferred"}, cpu="500m")),
    ],
}
