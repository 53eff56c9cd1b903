"""For each rule about autoscalers: documents that trip it, and the same ones mended."""

import yaml

from tests.lint.building import Case, case, deployment, scheduler
from tests.lint.our_cases import CONFIG_MAP, ours


def status(namespace: str = "kube-system") -> str:
    metadata = {"name": "cluster-autoscaler-status", "namespace": namespace}
    document = {"kind": "ConfigMap", "metadata": metadata, "data": {"status": "autoscalerStatus: Running\n"}}
    return yaml.safe_dump({"kind": "List", "items": [document]})


def definition(group: str) -> str:
    return yaml.safe_dump({"kind": "CustomResourceDefinition", "spec": {"group": group}})


SETTING = "NUMA_EXTENDER_AUTOSCALING"
OFF, ON = (CONFIG_MAP.format(f"AUTOSCALING: '{mode}'") for mode in ("off", "dry-run"))

AUTOSCALERS = {
    "cluster-autoscaler-unasked": [
        Case((status(), deployment()), (status(), ours(**{SETTING: "on"}))),
        Case((status(), ours(**{SETTING: "off"})), (status(), scheduler())),
        Case((status(), OFF), (status(), deployment(), ON)),
        Case((status(), deployment()), (status("team-a"), deployment())),
    ],
    "karpenter-unsupported": [
        case("apiVersion: karpenter.sh/v1\nkind: NodePool\n", "apiVersion: other.io/v1\nkind: NodePool\n"),
        case(definition("karpenter.sh"), definition("autoscaling.x-k8s.io")),
        Case(("apiVersion: karpenter.sh/v1\nkind: NodeClaim\n", ON), (ON, OFF)),
    ],
}
