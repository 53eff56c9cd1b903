"""Pods that reach their kubelet past the scheduler: bound by `nodeName`, with a deadline, and static pods that change.

A round is a row of pods on one node, one after another. Just before each, what-if says what the kubelet will do, and
afterwards the CPUs and the memory that the container was given are compared with that. The node's exporter is away
meanwhile, so that the extender knows the pods of the row by the watch alone. Between two rows, on real kubelets, the
manifest of the node's static pod changes. Left out: devices, and pods of which what-if was not certain.
"""

from collections import Counter
from random import Random

from tests.live.asked import said, was, what_if
from tests.live.binaries import Binaries
from tests.live.book import FINISHED, Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.node import LiveNode
from tests.live.processes import SceneError, until
from tests.live.report import Findings
from tests.live.whole.comparing import OTHER, SAME, UNSAID
from tests.live.whole.node import WholeNode
from tests.live.whole.runtime import LIFE
from tests.live.workload import PODS, create, simple_pod

NODES, ROUNDS, ROW = 4, 8, 5
LIFE_SECONDS, PATIENCE_SECONDS = 25.0, 60.0
DEADLINE_SECONDS = 4
"""Of every third pod: it ends within its row."""
CPUS = (1, 6)
AS_SAID = 0.6
"""At least this share of the pods is as what-if said, and none is otherwise. Of the others it was not certain."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """What-if is right about every pod of which it is certain."""
    findings, counts, random = Findings("direct"), Counter[str](), Random(plan.seed)
    rounds = plan.rounds or ROUNDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.nodes.live_for(plan.seconds or LIFE_SECONDS)
        nodes = running.nodes.all
        with Book(running.plane.url, running.plane.admin_context) as book:
            for number in range(rounds):
                node = nodes[number % len(nodes)]
                changed = _change_static_pod(running, node, number, random)
                audit_of(running.extender, say)
                counts["static pods"] += changed
                assert node.exporter is not None
                node.exporter.stop()
                for place in range(ROW):
                    result, line = _placed(running, book, node, f"direct-{number}-{place}", random)
                    counts[result] += 1
                    say(line)
                    findings.details += [line] * (result == OTHER)
                node.exporter.start()
        audit = audit_of(running.extender, say)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("kubelets", counted(running.nodes.versions()))
        is_real = isinstance(nodes[0], WholeNode)
    pods, static = rounds * ROW, counts.pop("static pods")
    least = int(AS_SAID * pods)
    ok = counts[SAME] >= least > 0 and not counts[OTHER]
    bound = f"at least {least} {SAME}, 0 {OTHER}"
    findings.must("pods, by what what-if had said", counted(counts), bound, ok=ok)
    least = rounds if is_real else 0
    findings.must("manifests of static pods that changed", static, f"at least {least}", ok=static >= least)
    show_audit(findings, audit, 1)
    return findings


def _placed(running: Cluster, book: Book, node: LiveNode, name: str, random: Random) -> tuple[str, str]:
    """How one pod came out, and a line about it."""
    pod = simple_pod(name, random.randint(*CPUS), f"{random.randint(1, 4)}Gi")
    if random.random() < 1 / 3:
        pod["spec"]["activeDeadlineSeconds"] = DEADLINE_SECONDS
    answer = what_if(running.extender, node, pod)
    pod["spec"]["nodeName"] = node.name
    uid = create(running.plane.api, pod)["metadata"]["uid"]

    def is_known() -> bool:
        entry = book.entry(uid)
        return entry is not None and (entry.running or entry.phase in FINISHED)

    if not book.wait(is_known, PATIENCE_SECONDS):
        raise SceneError(f"{name} on {node.name}: neither admitted nor refused within {PATIENCE_SECONDS:.0f} s")
    entry = book.entry(uid)
    assert entry is not None
    expected, found = said(answer, node), was(node, uid) or entry.pod["status"].get("reason", "")
    if answer["verdict"]["certainty"] != "exact":
        return UNSAID, f"{name} on {node.name}: {found}; what-if was not certain"
    is_same = found == expected or (answer["outcome"] == "scheduler" and found.startswith("OutOf"))
    return SAME if is_same else OTHER, f"{name} on {node.name}: said {expected}, was {found}"


def _change_static_pod(running: Cluster, node: LiveNode, number: int, random: Random) -> bool:
    """Another manifest at the same path, until the kubelet runs the new pod; False: the kubelet reads no manifests."""
    if not isinstance(node, WholeNode):
        return False
    pod = simple_pod("static", random.randint(1, 3), terminationGracePeriodSeconds=1)
    labels = {"number": str(number)}
    pod["metadata"] |= {"namespace": "default", "labels": labels, "annotations": {LIFE: "3600"}}
    node.write_manifest("static.json", pod)
    path = f"{PODS}?fieldSelector=spec.nodeName%3D{node.name},status.phase%3DRunning&labelSelector=number%3D{number}"
    until(lambda: running.plane.api.items(path), PATIENCE_SECONDS, f"the static pod of {node.name} runs")
    return True
