"""States of nodes from the recordings of the NRI policy, as a plugin would leave them and an exporter report them.

The state before a recorded creation is written as the plugin's state file, read by the exporter, and sent as a report.
The pod has the one container that was created next. What the plugin then did is the expected answer.
"""

import json
import lzma
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from extender.conformance.nri_scenario import memory_type_names
from extender.nri.books import Books
from extender.nri.events import Node
from extender.wire.nri_scenarios import NriStep, scenario_from_json
from node_exporter.nri_machine import DiscoveryError, read_nri_machine
from node_exporter.nri_plugin import read_state_file
from tests.node_exporter.nri_trees import write_nri_machine, write_state_file
from tests.replay.nri.vectors import THEMES, VECTORS, creations, machine, snapshot
from tests.reports import report_of, sample

_QOS = {"G": "Guaranteed", "B": "Burstable", "E": "BestEffort"}
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a few thousand small files
_TYPES = {"normal": 0, "reserved": 1, "preserve": 2}
_WITHOUT_CREATIONS = ("restart", "reconf", "start", "pools")
"""Themes of which the state before a creation is not one of many, or of which there is none."""


@dataclass(frozen=True, slots=True)
class RecordedCreation:
    """A creation: the node before it, the pod (of this container only), and the class of the refusal, "" for none.

    `placed`: pool, exclusive CPUs, cpuset and memory nodes; None: refused. No cpuset: it is not pinned.
    """

    name: str
    machine: str
    config: Mapping[str, Any]
    before: Node
    pod: Mapping[str, Any]
    refusal: str
    placed: tuple[str, str, str | None, str] | None


def recorded_creations(theme: str, seed: int = 19) -> Iterator[RecordedCreation]:
    """The creations of a theme that a scheduler can be asked about, scenario by scenario, in a random order."""
    with lzma.open(VECTORS / f"{theme}.jsonl.xz") as file:
        lines = list(file)
    random.Random(seed).shuffle(lines)
    for line in lines:
        yield from _of_scenario(json.loads(line))


def sampled_creations(count: int, seed: int = 19) -> Iterator[RecordedCreation]:
    """About *count* creations, the same number of each theme, a refused one as often as not where there are any."""
    themes = [theme for theme in THEMES if theme not in _WITHOUT_CREATIONS]
    random_ = random.Random(seed)
    for theme in themes:
        wanted = -(-count // len(themes))
        refused, accepted = list[RecordedCreation](), list[RecordedCreation]()
        for creation in recorded_creations(theme, seed):
            kind = refused if creation.refusal else accepted
            if len(kind) < wanted and random_.random() < 0.2:
                kind.append(creation)
            if len(refused) >= wanted // 2 and len(accepted) >= wanted // 2:
                break
        half = refused[: wanted // 2]
        yield from half
        yield from accepted[: wanted - len(half)]


def _of_scenario(document: Mapping[str, Any]) -> Iterator[RecordedCreation]:
    """Up to the first new configuration or restart; without what no Kubernetes pod can be, and without devices."""
    if "start" in document:
        return
    scenario = scenario_from_json(document)
    pods: dict[str, NriStep] = {}
    nodes_before = (each.args[0] for each in creations(scenario, machine(scenario.machine)))
    for step, answer in zip(scenario.steps, document["r"], strict=True):
        if step.o == "pod":
            pods[step.id] = step
        if step.o in ("cfg", "restart") or answer.get("varies"):
            return
        if step.o == "rmpod":
            pods.pop(step.id, None)
        pod = pods.get(step.p)
        if step.o != "new" or pod is None:
            continue
        before = next(nodes_before)
        if not _can_be_asked(step, pod, before):
            continue
        yield RecordedCreation(
            name=f"{scenario.id}/{step.id}",
            machine=scenario.machine,
            config=document["cfg"],
            before=before,
            pod=_manifest(step, pod),
            refusal=answer.get("ec", ""),
            placed=_placed(answer) if "g" in answer else None,
        )


def _placed(answer: Mapping[str, Any]) -> tuple[str, str, str | None, str]:
    grant = answer["g"]
    return grant["pool"], grant.get("ex", ""), answer.get("cpus"), grant.get("mem", "")


def _can_be_asked(step: NriStep, pod: NriStep, before: Node) -> bool:
    replaces = f"{pod.ns}/{pod.n}/{step.n}" in before.running
    request, limit, memory_request, memory_limit = step.r
    is_defaulted = (memory_limit > 0 and memory_request <= 0) or (limit > 0 and request <= 0)
    return not (step.dev or step.wild or step.oom is not None or pod.pr or replaces or is_defaulted)


def _manifest(step: NriStep, pod: NriStep) -> dict[str, Any]:
    request, limit, memory_request, memory_limit = step.r
    requests = {
        "cpu": f"{request}m" if request > 0 else None,
        "memory": str(memory_request) if memory_request > 0 else None,
    }
    limits = {"cpu": f"{limit}m" if limit > 0 else None, "memory": str(memory_limit) if memory_limit > 0 else None}
    resources = {
        "requests": {key: text for key, text in requests.items() if text},
        "limits": {key: text for key, text in limits.items() if text},
    }
    return {
        "metadata": {
            "name": pod.n, "namespace": pod.ns, "uid": f"new-{pod.id}", "labels": pod.lb, "annotations": pod.an,
        },
        "spec": {"containers": [{"name": step.n, "image": "i", "resources": resources}]},
        "status": {"phase": "Pending", "qosClass": _QOS[pod.q]},
    }  # fmt: skip


@cache
def machine_facts(name: str) -> Mapping[str, Any] | None:
    """The machine as the exporter reports it; None where the plugin's discovery fails."""
    with TemporaryDirectory(dir=IN_MEMORY) as root:
        write_nri_machine(Path(root), snapshot(name))
        try:
            return asdict(read_nri_machine(Path(root)))
        except DiscoveryError:
            return None


def state_file_of(books: Books) -> dict[str, Any]:
    """Grants, pods and containers as the plugin writes them."""
    grants, containers, pods = {}, {}, {}
    for id_, grant in books.grants.items():
        container = books.containers[id_]
        pod = books.pods.get(container.pod_id)
        namespace, name, _ = container.full_name.split("/")
        grants[id_] = {
            "PrettyName": f"{namespace}/{name}/{container.name}",
            "Exclusive": _ids(grant.exclusive),
            "Part": grant.portion,
            "CPUType": _TYPES[grant.cpu_type.value],
            "Container": id_,
            "Pool": books.setup.tree.pools[grant.pool].name,
            "MemoryPool": grant.memory_nodes,
            "MemType": memory_type_names(grant.memory_types),
            "MemSize": grant.memory_bytes,
            "ColdStart": 0,
        }
        requests = {key: f"{amount}m" for key, amount in container.requirements.requests.items() if key == "cpu"}
        updated = container.updates and {key: f"{v}m" for key, v in container.updates.requests.items() if key == "cpu"}
        if id_ not in books.uncached:
            containers[id_] = {
                "Ctr": {
                    "id": id_, "pod_sandbox_id": container.pod_id, "name": container.name,
                    "labels": {**container.labels, "io.kubernetes.container.name": container.name},
                },
                "Requirements": {"requests": requests},
                "ResourceUpdates": None if updated is None else {"requests": updated, "limits": {}},
            }  # fmt: skip
        if pod is not None:
            pods[container.pod_id] = {
                "Pod": {
                    "id": pod.id, "name": pod.name, "uid": pod.uid, "namespace": pod.namespace,
                    "labels": {**pod.labels, "io.kubernetes.pod.uid": pod.uid},
                },
                "QOSClass": pod.qos.value,
            }  # fmt: skip
    return {"grants": grants, "Pods": pods, "Containers": containers}


def section_of(machine_name: str, config: Mapping[str, Any], before: Node) -> dict[str, Any]:
    """The section `nri` of a report, made by the exporter from the plugin's state file."""
    with TemporaryDirectory(dir=IN_MEMORY) as root:
        file = state_file_of(before.books)
        write_state_file(Path(root), file.pop("grants"), **file)
        state = read_state_file(Path(root))
    assert state is not None
    grants = state.grants
    return {
        "version": 1, "machine": machine_facts(machine_name), "config": dict(config), "config_source": "default",
        "config_status": "Success", "release": "v0.14.0", "grants": [asdict(grant) for grant in grants],
    }  # fmt: skip


@cache
def _report(*, align: bool) -> bytes:
    if align:
        return orjson.dumps(report_of(sample()))
    node = sample(cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none")
    return orjson.dumps(report_of(node))


def report_with(
    section: Mapping[str, Any], node_name: str, sequence: int = 1, *, align: bool = False
) -> dict[str, Any]:
    """A report of a node with this section and the pods of its grants. *align*: whether its kubelet aligns pods."""
    plain: dict[str, Any] = orjson.loads(_report(align=align))
    pods = {
        grant["pod_uid"]: {
            "namespace": grant["namespace"], "name": grant["pod"], "uid": grant["pod_uid"], "counted": True,
            "containers": [],
        }
        for grant in section["grants"] or ()
        if grant["pod_uid"]
    }  # fmt: skip
    changes = {"node_name": node_name, "sequence": sequence, "nri": dict(section), "pods": list(pods.values())}
    return {**plain, **changes}


def filter_answer(reply: Mapping[str, Any], node_name: str) -> str:
    """Why the node is refused in a reply to filter; "" if it is feasible."""
    assert not reply["Error"], reply["Error"]
    refused = {**(reply["FailedNodes"] or {}), **(reply["FailedAndUnresolvableNodes"] or {})}
    assert (node_name in refused) is not (node_name in (reply["NodeNames"] or ()))
    return str(refused.get(node_name, ""))


def _ids(mask: int) -> str:
    return ",".join(str(i) for i in range(mask.bit_length()) if mask >> i & 1)
