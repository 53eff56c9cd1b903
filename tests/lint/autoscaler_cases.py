"""For each rule about autoscalers: documents that trip it, and the same ones mended."""

from tests.lint.building import Case, as_yaml, deployment, scheduler
from tests.lint.our_cases import CONFIG_MAP, ours


def status(namespace: str = "kube-system") -> str:
    metadata = {"name": "cluster-autoscaler-status", "namespace": namespace}
    document = {"kind": "ConfigMap", "metadata": metadata, "data": {"status": "autoscalerStatus: Running\n"}}
    return as_yaml({"kind": "List", "items": [document]})


def definition(group: str) -> str:
    return as_yaml({"kind": "CustomResourceDefinition", "spec": {"group": group}})


SETTING = "NUMA_EXTENDER_AUTOSCALING"
OFF, ON = (CONFIG_MAP.format(f"AUTOSCALING: '{mode}'") for mode in ("off", "dry-run"))

NODE_POOL = "apiVersion: karpenter.sh/v1\nkind: NodePool\n"

AUTOSCALERS = {
    "cluster-autoscaler-unasked": [
        Case((status(), deployment()), (status(), ours(**{SETTING: "on"}))),
        Case((status(), ours(**{SETTING: "off"})), (status(), scheduler())),
        Case((status(), OFF), (status(), deployment(), ON)),
        Case((status(), deployment()), (status("team-a"), deployment())),
    ],
    "karpenter-unasked": [
        Case((NODE_POOL, deployment()), (NODE_POOL, ours(**{SETTING: "on"}))),
        Case((definition("karpenter.sh"), OFF), (definition("autoscaling.x-k8s.io"), OFF)),
        Case(("apiVersion: karpenter.sh/v1\nkind: NodeClaim\n", OFF), (NODE_POOL, ON)),
        Case((NODE_POOL, deployment()), (NODE_POOL, scheduler())),
    ],
}
