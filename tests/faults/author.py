"""Attacks that nobody wrote down: an author of pods and a node that do at random all that they may.

The author creates, deletes, labels, annotates, groups and claims; every object is one that the API's own schema takes,
made of the fields that the extender asks for (`kinds`). The node sends what the wire's types allow (`typed`). The same
number of a strike does the same.
"""

import copy
import random
from contextlib import suppress
from typing import Any, Final

import orjson
from kubernetes_validate import ValidationError, validate  # type: ignore[import-untyped]

from tests.fakes.k8s.resources import ApiProblem
from tests.faults.attack_drill import SEEN_SECONDS, Attack, World, within
from tests.faults.attacks import DEEP, EVIL, NESTED
from tests.faults.declared import VERSION, Maker
from tests.faults.honest import NODES
from tests.faults.kinds import asked
from tests.faults.typed import bent
from tests.nri_samples import EIGHT, nri_report, placed_pod
from tests.reports import DUAL, report_of, sample

JSON = dict[str, Any]
ACTS: Final = 25
"""What one strike does."""
MAX_ANNOTATIONS: Final = 250 << 10
"""Bytes: a little less than a real API server takes."""
SLOW: Final = ("author-static", "author-nri")
"""Nodes on which pods stay in flight: their kubelets pull images for as long as the drill lasts."""
SHARED: Final = NODES[:2]
"""Honest nodes on which the author creates pods as well; their kubelets refuse or end them soon."""


class Author(Attack):
    """Creates, deletes, labels, annotates, groups and claims at random, in one namespace."""

    name = "A1 author"

    def __init__(self, seed: int = 1) -> None:
        self._seed = seed

    def prepare(self, world: World) -> None:
        world.server.store.verbatim[orjson.dumps(DEEP)] = NESTED
        for name in SLOW:
            world.join(name)
        assert world.report(report_of(sample(SLOW[0], hardware=EIGHT))) == 200
        assert world.report(nri_report(SLOW[1], [placed_pod("own", "2", "1Gi")], hardware=EIGHT)) == 200

    def strike(self, world: World, number: int) -> None:
        chance = random.Random(self._seed * 1_000_003 + number)
        pods, claims, groups = (
            Maker(schema, asked(schema), chance)
            for schema in ("pod-v1", "resourceclaim-resource-v1", "podgroup-scheduling-v1beta1")
        )
        mine: list[tuple[str, str]] = []
        for act in range(ACTS):
            name = f"author-{self._seed}-{number}-{act}"
            match chance.randrange(10):
                case 0 | 1 | 2 | 3:
                    node = chance.choice((*SLOW, *SLOW, *SHARED))
                    world.create(valid_pod(pods, name, chance, node))
                    mine.append((name, node))
                case 4 | 5:
                    world.filter(world.create(valid_pod(pods, name, chance)))
                case 6 if mine:
                    changed = valid_pod(pods, name, chance)["metadata"]
                    parts = {key: changed[key] for key in ("labels", "annotations") if changed.get(key)}
                    with suppress(ApiProblem):  # its kubelet may have refused it, and somebody deleted it
                        world.server.pods.patch(mine[-1][0], {"metadata": parts}, EVIL)
                case 7 if mine:
                    world.delete(mine.pop(chance.randrange(len(mine)))[0], EVIL)
                case 8:
                    claim = {**_without_status(claims.make()), "metadata": _metadata(name, {}, chance)}
                    world.server.claims.create(claim)
                case 9:
                    group = {**_without_status(groups.make()), "metadata": _metadata(f"group-{name}", {}, chance)}
                    world.server.pod_groups.create(group)
        for name, node in mine:
            if node in SHARED:
                refused = {"phase": "Failed", "reason": chance.choice(("NodeAffinity", "OutOfcpu", "Evicted"))}
                with suppress(ApiProblem):  # as above
                    world.server.pods.patch(name, {"status": {**refused, "message": "Pod was rejected: no"}}, EVIL)


class WildNode(Attack):
    """A node that reports anything that the types of the wire allow, NRI included."""

    name = "A2 wild node"

    def __init__(self, seed: int = 1) -> None:
        self._seed = seed
        self.taken = 0
        self.defects: list[str] = []

    def prepare(self, world: World) -> None:
        world.join("wild")

    def strike(self, world: World, number: int) -> None:
        chance = random.Random(self._seed * 1_000_003 + number)
        bases = [
            orjson.dumps(nri_report("wild", [placed_pod(f"w{i}", "1", "1Gi") for i in range(3)], hardware=hardware))
            for hardware in (DUAL, EIGHT)
        ]
        bases.append(orjson.dumps(report_of(sample("wild", devices={"vendor.example/gpu": [0, 1]}))))
        for turn in range(ACTS):
            report = bent(copy.deepcopy(orjson.loads(chance.choice(bases))), chance, places=chance.choice((1, 1, 2, 4)))
            report |= {"node_name": "wild", "sequence": number * ACTS + turn + 1, "boot_id": "boot-1"}
            status = world.report(report)
            self.taken += status == 200
            if not 200 <= status < 500:
                self.defects.append(f"report {turn} of strike {number} was answered with {status}")
        world.report(_far_devices(number))

    def check(self, world: World) -> list[str]:
        honest = report_of(sample("wild"), sequence=10**9)
        found = self.defects[:5] if self.taken else ["no report of the node was taken"]
        if not within(SEEN_SECONDS, lambda: world.report(honest) == 200):
            found.append("a good report of the node is not taken any more")
        return found


def _far_devices(number: int) -> JSON:
    """A report with a device on a NUMA node of a number that random changes seldom make, and that no machine has."""
    report = orjson.loads(orjson.dumps(report_of(sample("wild", devices={"vendor.example/gpu": [0, 1]}))))
    for device in report["devices"]["vendor.example/gpu"]:
        device["numa"] = [2**32 + number]
    return {**report, "sequence": (number + 1) * ACTS, "boot_id": "boot-1"}


def valid_pod(maker: Maker, name: str, chance: random.Random, node: str = "") -> JSON:
    """A pod of the author that the API's schema takes."""
    for _ in range(50):
        pod = _without_status(maker.make())
        spec = pod.setdefault("spec", {})
        containers = spec.get("containers") or [{"name": "app"}]
        for key, listed in (("c", containers), ("i", spec.get("initContainers", []))):
            for number, container in enumerate(listed):
                container.update(name=f"{key}{number}", image="i")
        spec.update(containers=containers, nodeName=node or None)
        spec.pop("nodeName") if not node else None
        document = {
            "apiVersion": "v1",
            "kind": "Pod",
            **pod,
            "metadata": _metadata(name, pod.get("metadata", {}), chance),
        }
        try:
            validate(document, VERSION, strict=False)
        except ValidationError:
            continue
        return document
    raise AssertionError("no valid pod in fifty")


def _without_status(document: JSON) -> JSON:
    """As an author creates it: the API server drops the status."""
    return {key: value for key, value in document.items() if key != "status"}


def _metadata(name: str, made: JSON, chance: random.Random) -> JSON:
    """What the author may choose of it."""
    annotations, size = {}, 0
    for key, text in (made.get("annotations") or {}).items():
        size += len(key) + len(str(text).encode())
        if size < MAX_ANNOTATIONS:
            annotations[key] = text
    labels = {key: text for key, text in (made.get("labels") or {}).items() if str(text).isalnum() and len(text) < 64}
    metadata = {"name": name, "namespace": EVIL, "annotations": annotations, "labels": labels}
    if chance.random() < 0.05:
        metadata["managedFields"] = [
            {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": DEEP}
        ]
    return metadata
