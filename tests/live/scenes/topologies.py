"""Reports that travel as NodeResourceTopology objects through the API server.

Left out: how late they are, and what the API server pays for them.
"""

from tests.live.binaries import Binaries
from tests.live.bounds import show_load
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, feed
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 200, 12.0
OBJECTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """As the mixed load; nothing is pushed."""
    findings = Findings("topologies")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(
        binaries,
        plan,
        say,
        nodes=NODES,
        components=("topology-objects",),
        exporter_arguments=("--nrt",),
        topologies="on",
    ) as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            found = feed(running, "topologies", seed=plan.seed, pods=pods, life_seconds=life)
        audit = audit_of(running.extender, say)
        objects = len(running.plane.api.items(OBJECTS))
        count = len(running.nodes.all)
        findings.show("kube-apiserver", running.plane.version)
    findings.show("nodes, pods", f"{count}, {pods}")
    findings.must("NodeResourceTopology objects", objects, str(count), ok=objects == count)
    show_load(findings, found, audit)
    return findings
