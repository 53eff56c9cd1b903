"""The attacks of `attack_drill`: what an author of pods, or one node, can do, and did to an earlier version.

Every object is one that a real API server takes from somebody who may create pods in one namespace, unless its attack
says otherwise. Every report is one that the wire takes from a node with a valid token.
"""

import socket
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from extender.samples.machines import Hardware
from tests.faults.attack_drill import SEEN_SECONDS, Attack, World, within
from tests.faults.honest import NAMESPACES, NODES, SHAPES, honest_pod
from tests.nri_samples import CONFIG, EIGHT, nri_report, placed_pod
from tests.reports import pod_of, report_of, sample

JSON = dict[str, Any]
EVIL: Final = "evil"
"""The attacker's namespace."""
DEEP: Final = "@deep@"
"""The API server sends objects nested 1,100 deep in place of this text."""
NESTED: Final = b'{"f:a":' * 1100 + b"{}" + b"}" * 1100


def evil_pod(name: str, cpu: int = 1, *, node: str = "", **metadata: Any) -> JSON:
    """A small pod in the attacker's namespace."""
    pod = pod_of(cpu, name=name)
    pod["metadata"] = {**pod["metadata"], "namespace": EVIL, **metadata}
    if node:
        pod["spec"]["nodeName"] = node
    return pod


def _managed(text: str) -> list[JSON]:
    return [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": text}]


class DeepPod(Attack):
    """One pod with managed fields nested 1,100 deep, on a node."""

    name, restarts = "B1 deep pod", True

    def prepare(self, world: World) -> None:
        world.server.store.verbatim[orjson.dumps(DEEP)] = NESTED

    def strike(self, world: World, number: int) -> None:
        world.create(evil_pod(f"deep-{number}", node=NODES[0], managedFields=_managed(DEEP)))


class DeepClaim(Attack):
    """One ResourceClaim with managed fields nested 1,100 deep; another namespace's claims must still be known."""

    name, restarts = "B1 deep claim", True

    def prepare(self, world: World) -> None:
        world.server.store.verbatim[orjson.dumps(DEEP)] = NESTED

    def strike(self, world: World, number: int) -> None:
        world.server.claims.create(
            {"metadata": {"name": f"deep-{number}", "namespace": EVIL, "managedFields": _managed(DEEP)}, "spec": {}}
        )

    def check(self, world: World) -> list[str]:
        found = within(SEEN_SECONDS, lambda: world.open_watches("resourceclaims") > 0)
        return [] if found and world.is_ready() else ["the watch of claims has ended"]


class Annotations(Attack):
    """60 pending pods with 15 annotations of 16 kB each, which the NRI policy would read as YAML."""

    name = "B2 annotations"

    def strike(self, world: World, number: int) -> None:
        for pod in range(20):
            own = {
                f"x{k}.resource-policy.nri.io/pod": f"[{{{k}}},{{{pod}}}{f',{{{number}}}' * 4000}]" for k in range(15)
            }
            world.filter(evil_pod(f"annotated-{number}-{pod}", annotations=own))


class AnnotationsOnNRI(Annotations):
    """The same, with a node in the cluster that runs the policy."""

    name = "B2 annotations, NRI"

    def prepare(self, world: World) -> None:
        world.join("nri")
        assert world.report(nri_report("nri")) == 200


class SlowYAML(Attack):
    """Pods with 15 annotations of 16 kB each that are slow to read as YAML."""

    name = "B2 slow YAML"

    def prepare(self, world: World) -> None:
        world.join("nri")
        assert world.report(nri_report("nri")) == 200

    def strike(self, world: World, number: int) -> None:
        for pod in range(6):
            start = f"[{number},{pod},"
            own = {f"x{k}.resource-policy.nri.io/pod": f"{start}{k}{',0' * 8000}]" for k in range(15)}
            world.filter(evil_pod(f"yaml-{number}-{pod}", annotations=own))


class MirrorPods(Attack):
    """Pods that name a mirror's UID which no kubelet has, created on the nodes and deleted at once."""

    name = "B3 mirror pods"

    def strike(self, world: World, number: int) -> None:
        names = [(node, f"mirror-{number}-{node}-{i}") for node in NODES for i in range(15)]
        for node, name in names:
            own = {"kubernetes.io/config.mirror": f"random-{name}"}
            world.create(evil_pod(name, 2, node=node, annotations=own))
        for _, name in names:
            world.delete(name, EVIL)


class Grants(Attack):
    """One node reports 300, 600 and 1,000 containers that the NRI policy manages."""

    name = "B4 grants"
    node = "evil-grants"
    counts = (300, 600, 1000)

    def prepare(self, world: World) -> None:
        world.join(self.node)

    def strike(self, world: World, number: int) -> None:
        grants = [grant(i) for i in range(self.counts[number % len(self.counts)])]
        world.report({**nri_report(self.node, grants=grants), "sequence": number + 1})


def grant(number: int) -> JSON:
    """A small grant that is unlike the others."""
    uid = f"uid-{number}"
    return {
        "container_id": f"id-{number}", "namespace": EVIL, "pod": f"p{number}", "container": "app",
        "pool": "socket #1", "cpu_type": "normal", "exclusive": "", "millicpu": 10, "memory_nodes": 2,
        "memory_types": 1, "memory_bytes": 1 << 20, "pod_uid": uid, "qos": "Guaranteed", "requests_cpu": True,
        "pod_labels": {"io.kubernetes.pod.uid": uid}, "labels": {"io.kubernetes.container.name": "app"},
    }  # fmt: skip


class InFlight(Attack):
    """Pods of several containers that wait for their images on a node with the NRI policy. Nobody is hostile."""

    name = "B5 pods in flight"

    def prepare(self, world: World) -> None:
        world.join("nri-busy")
        assert world.report(nri_report("nri-busy", hardware=EIGHT)) == 200

    def strike(self, world: World, number: int) -> None:
        for each in range(7):
            pod = placed_pod(f"flight-{number}-{each}", f"{1 + each % 3}", "1Gi", containers=3)
            if each % 2:
                first = {"name": "init", "image": "i", "resources": pod["spec"]["containers"][0]["resources"]}
                pod["spec"]["initContainers"] = [first]
            pod["metadata"]["namespace"] = NAMESPACES[0]
            pod["spec"]["nodeName"] = "nri-busy"
            world.create(pod)
            within(0.2, lambda: False)


class PodGlobs(Attack):
    """A pod whose affinity for the NRI policy has a glob of 7,000 characters over a joint key."""

    name = "B6 globs of a pod"

    def prepare(self, world: World) -> None:
        world.join("nri-full")
        label = {"a": "a" * 63}
        pods = [placed_pod(f"placed-{i}", "1", "1Gi", labels=label) for i in range(8)]
        assert world.report(nri_report("nri-full", pods)) == 200

    def strike(self, world: World, number: int) -> None:
        key = ":,," + ",".join(["labels/a", "pod/labels/a", "name", "namespace"] * 40)
        match = {"key": key, "operator": "Matches", "values": ["*" + "a*" * 3500 + f"b{number}"]}
        entry = {"scope": {"key": "name", "operator": "AlwaysTrue"}, "match": match}
        own = {"resource-policy.nri.io/affinity": orjson.dumps({"app": [entry]}).decode()}
        world.filter(evil_pod(f"glob-{number}", annotations=own))


class NodeGlobs(Attack):
    """A node whose NRI configuration has patterns for namespaces: one of 0.9 MB, then as long ones as are taken."""

    name = "B6 globs of a node"
    node = "evil-globs"

    def prepare(self, world: World) -> None:
        world.join(self.node)

    def strike(self, world: World, number: int) -> None:
        for turn, stars in enumerate((450_000, 28_000)):
            config = {**CONFIG, "reservedPoolNamespaces": ["*" + "e*" * stars + f"x{number}"]}
            world.report({**nri_report(self.node, config=config), "sequence": 2 * number + turn + 1})
        for each in range(3):
            long = evil_pod(f"namespaced-{number}-{each}")
            long["metadata"]["namespace"] = "e" * (61 + each)
            world.filter(long)


class Configurations(Attack):
    """One node reports again and again, each time with another NRI configuration of 1 MB."""

    name = "B7 configurations"
    node = "evil-configurations"

    def prepare(self, world: World) -> None:
        world.join(self.node)

    def strike(self, world: World, number: int) -> None:
        report = nri_report(self.node)
        for each in range(45):
            at = number * 45 + each + 1
            classes = [{"name": f"{at}-{i}-{'c' * 200}"} for i in range(4200)]
            report["nri"]["config"] = {**CONFIG, "cpuClasses": classes}
            world.report({**report, "sequence": at})


class Refusals(Attack):
    """Pods of the victims' shapes with a selector that no node has, on every node: each fails as `NodeAffinity`."""

    name = "B8 refusals"

    def strike(self, world: World, number: int) -> None:
        for shape in range(len(SHAPES)):
            for node in NODES:
                pod = honest_pod(shape, f"refused-{number}-{shape}-{node}")
                pod["metadata"].update(namespace=EVIL, uid=f"uid-{pod['metadata']['name']}")
                pod["spec"].update(nodeName=node, nodeSelector={"no": "node"})
                world.create(pod)
                status = {"phase": "Failed", "reason": "NodeAffinity", "message": "Pod was rejected: node(s) …"}
                world.server.pods.patch(pod["metadata"]["name"], {"status": status}, EVIL)


class Specs(Attack):
    """Creates and deletes pods of 110 containers on a node, each with another spec."""

    name = "B9 specs"
    node = "evil-specs"

    def prepare(self, world: World) -> None:
        world.join(self.node)

    def strike(self, world: World, number: int) -> None:
        containers = [{"name": f"c{i}", "image": "i"} for i in range(110)]
        names = [f"spec-{number}-{i}" for i in range(700)]
        for name in names:
            pod = evil_pod(name, node=self.node, labels={"name": name})
            pod["spec"]["containers"] = containers
            world.create(pod)
            world.delete(name, EVIL)
            time.sleep(0.003)  # as many as a real API server takes in a second


class HeldGroups(Attack):
    """Two groups of 100 pods with twelve containers each, of which one pod each has come."""

    name = "S1 held groups"

    def prepare(self, world: World) -> None:
        hardware = Hardware(
            sockets=2, numa_per_socket=4, cores_per_numa=24, threads=2, memory_gib=256, distances=(10, 20)
        )
        for group in range(2):
            world.join(f"large-{group}", cpu=384)
            assert world.report(report_of(sample(f"large-{group}", hardware=hardware))) == 200

    def strike(self, world: World, number: int) -> None:
        amounts = {"cpu": "100m", "memory": "64Mi"}
        for group in range(2):
            pod = evil_pod(f"member-{number}-{group}")
            pod["metadata"]["annotations"] = {
                "numa-extender.io/group": f"group-{group}", "numa-extender.io/group-size": "100",
            }  # fmt: skip
            container = {"image": "i", "resources": {"requests": amounts, "limits": amounts}}
            pod["spec"]["containers"] = [{"name": f"c{i}", **container} for i in range(12)]
            world.filter(world.create(pod))


class Caches(Attack):
    """A node of 16 CPUs that name one cache 2,000 times, then 9,000 times."""

    name = "S2 caches"
    node = "evil-caches"
    counts = (2000, 9000, 9000)

    def prepare(self, world: World) -> None:
        world.join(self.node)

    def strike(self, world: World, number: int) -> None:
        report = nri_report(self.node)
        report["sequence"] = number + 1
        machine = report["nri"]["machine"]
        cpus = [list(cpu) for cpu in machine["cpus"]]
        for cpu in cpus[:16]:
            cpu[8] = list(cpu[8]) * self.counts[number % len(self.counts)]
        report["nri"]["machine"] = {**machine, "cpus": cpus}
        world.report(report)


class Tolerations(Attack):
    """A pod whose toleration has a list as its key, as an API server with a bug, or another version, could send it."""

    name, restarts = "S3 tolerations", True

    def strike(self, world: World, number: int) -> None:
        pod = evil_pod(f"tolerant-{number}", node=NODES[0])
        pod["spec"]["tolerations"] = [{"key": ["a"], "operator": "Exists"}]
        world.create(pod)


class Sibling(Attack):
    """The newest node of a kind reports a machine twice as large as its seven siblings have."""

    name = "S4 sibling"
    node = "evil-sibling"
    honest = tuple(f"sibling-{i}" for i in range(7))

    def prepare(self, world: World) -> None:
        for age, name in enumerate(self.honest, 1):
            world.join(name, kind="k", age=age)
            assert world.report(report_of(sample(name))) == 200
        world.join(self.node, kind="k", age=30)

    def strike(self, world: World, number: int) -> None:
        large = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=16, threads=2, memory_gib=64, distances=(10, 21))
        world.report(report_of(sample(self.node, hardware=large), sequence=number + 1))
        world.join(f"new-{number % 3}", kind="k", age=40 + number % 3)

    def check(self, world: World) -> list[str]:
        new = "new-0"
        found = []
        if not within(SEEN_SECONDS, lambda: world.line.filter(pod_of(8), [new]) == ("", [new])):
            found.append("a new node is not taken for one like its seven honest siblings")
        if (answer := world.line.filter(pod_of(20), [new])) is not None and answer[1]:
            found.append("a new node is taken for one like its hostile sibling: it is offered more than it has")
        return found


class ClaimNames(Attack):
    """Pods that demand alignment and name one allocated claim 6,000 times: 1,000 names, in each of 6 containers."""

    name = "C1 claim names"

    def prepare(self, world: World) -> None:
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        for node in NODES:
            devices = [{"name": f"{node}-{i}"} for i in range(128)]
            spec = {"driver": "d", "nodeName": node, "pool": {**pool, "name": node}, "devices": devices}
            world.server.slices.create({"metadata": {"name": node}, "spec": spec})
        results = [{"request": "r", "driver": "d", "pool": NODES[0], "device": f"{NODES[0]}-0"}]
        status = {"allocation": {"devices": {"results": results}}}
        world.server.claims.create({"metadata": {"name": "shared", "namespace": EVIL}, "spec": {}, "status": status})

    def strike(self, world: World, number: int) -> None:
        names = [{"name": f"c{i}"} for i in range(1000)]
        for each in range(6):
            pod = evil_pod(f"named-{number}-{each}", annotations={"numa-extender.io/alignment": "single-numa-node"})
            pod["spec"]["resourceClaims"] = [{**name, "resourceClaimName": "shared"} for name in names]
            resources = {**pod["spec"]["containers"][0]["resources"], "claims": names}
            pod["spec"]["containers"] = [{"name": f"c{i}", "image": "i", "resources": resources} for i in range(6)]
            world.filter(pod)


class BadHTTP(Attack):
    """Connections that send what is not HTTP, as fast as they can."""

    name = "S5 no HTTP"

    def strike(self, world: World, number: int) -> None:  # noqa: ARG002 - the same in each window
        for _ in range(3000):
            with socket.create_connection(("127.0.0.1", world.extender.port), timeout=5) as connection:
                connection.sendall(b"\x00\x01 no request\r\n\r\n")
            time.sleep(0.001)  # whoever connects without a pause takes the CPU, whatever the answer is


ATTACKS: Final[Sequence[type[Attack]]] = (
    DeepPod, DeepClaim, Annotations, AnnotationsOnNRI, SlowYAML, MirrorPods, Grants, InFlight, PodGlobs, NodeGlobs,
    Configurations, Refusals, Specs, HeldGroups, Caches, Tolerations, Sibling, ClaimNames, BadHTTP,
)  # fmt: skip
