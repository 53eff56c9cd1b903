"""Creates the claims for CPUs that pods wait for.

A pod asks for it with the label `LABEL`: the name of an entry of its `spec.resourceClaims`, whose claim does not exist.
kube-scheduler does not try the pod before the claim exists. The claim is for as many CPUs as the container requests
that uses it.

Rules of this file
- kube-scheduler alone allocates: a claim names the CPUs that it may allocate. If they are taken meanwhile, the pod
  waits as for any device. Filter offers the chosen node alone, as long as it is feasible.
- The pod's other claims are predicted first, and the CPUs are chosen near their devices.
- A claim is created once, and is never changed or deleted: it is owned by the pod.
- Only the leader creates claims, of at most `A_STEP` pods in a step. A pod for which no CPUs were found is tried again
  after `AGAIN_SECONDS`.

RBAC: pods `list`, `watch`; resourceclaims of resource.k8s.io `create`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson

from extender.bounded import BoundedMap
from extender.features.claims.cpus.choice import MAX_CPUS, Choice, NodeCpus, choose, claim_for
from extender.features.claims.objects import ClaimObjects
from extender.kube.changes import Batch, Gone
from extender.kube.client import Requester, path_of
from extender.kube.errors import ApiError, KubeError
from extender.kube.objects import ObjectName, items, mapping, name_of, strings, text
from extender.kube.source import Source
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.kubelet.sets import bits_of
from extender.observability.logs import FewWarnings
from extender.questions.claim_alignment import claimed_of
from extender.questions.dra import ClaimForecast
from extender.questions.scheduler_checks import check_node
from extender.runtime.connection import LeaderTask
from extender.scheduling.node_totals import pod_requests
from extender.wire.errors import CapError, WireError
from extender.wire.workloads import PodWorkload, workload_from_json

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())
LABEL: Final = "numa-extender.io/cpu-claim"
A_STEP: Final = 4
MAX_NODES: Final = 500
"""Nodes that are looked at for one pod."""
MAX_STEPS: Final = 100_000
MAX_KEPT: Final = 1_000
MAX_BYTES: Final = 32 << 10
"""How many waiting pods are kept, and the largest one."""
AGAIN_SECONDS: Final = 10.0


class WaitingPod(NamedTuple):
    """A pod without a node that asks for CPUs. `claim`: the name of the claim that it waits for."""

    name: ObjectName
    claim: str
    manifest: bytes


def decode_waiting(value: Mapping[str, Any]) -> tuple[str, WaitingPod] | None:
    """The UID and the pod; None: it asks for nothing. Raises CapError: it is too large."""
    entry, spec = strings(mapping(value, "metadata"), "labels").get(LABEL, ""), mapping(value, "spec")
    claims = (text(each, "resourceClaimName") for each in items(spec, "resourceClaims") if each.get("name") == entry)
    claim = next(claims, "") if entry else ""
    if not claim:
        return None
    if len(manifest := orjson.dumps(value)) > MAX_BYTES:
        raise CapError("", f"a pod of {len(manifest)} bytes: at most {MAX_BYTES} are read")
    return name_of(value).uid, WaitingPod(name_of(value), claim, manifest)


WAITING: Final = Source(path="/api/v1/pods", decode=decode_waiting, field_selector="spec.nodeName=")
"""Pods without a node. Only those that ask are kept."""


class AskedCpus(NamedTuple):
    """How many CPUs, for which container, and the pod with its other claims alone."""

    number: int
    container: str
    workload: PodWorkload


def asked_by(waiting: WaitingPod) -> AskedCpus:
    """What the pod asks for.

    Raises:
        WireError: it cannot be read, or not exactly one container uses the claim and requests 1 to 32 whole CPUs.
    """
    manifest: dict[str, Any] = orjson.loads(waiting.manifest)
    spec, entry = manifest["spec"], manifest["metadata"]["labels"][LABEL]
    spec["resourceClaims"] = [each for each in items(spec, "resourceClaims") if each.get("name") != entry]
    users = []
    for container in items(spec, "containers"):
        claims = items(mapping(container, "resources"), "claims")
        if any(each.get("name") == entry for each in claims):
            users.append(text(container, "name"))
            container["resources"]["claims"] = [each for each in claims if each.get("name") != entry]
    workload = workload_from_json(manifest)
    wanted = [each.requests_milli.get("cpu", 0) for each in workload.pod.containers if each.name in users]
    if len(wanted) != 1 or wanted[0] % 1000 or not 0 < wanted[0] <= 1000 * MAX_CPUS:
        raise WireError("spec.containers", f"one container with 1 to {MAX_CPUS} whole CPUs must use the claim {entry}")
    return AskedCpus(wanted[0] // 1000, users[0], workload)


@dataclass
class CpuClaims(LeaderTask):
    """The controller of one service. *objects*: slices and claims. *make_forecast*: predicts the pod's other claims."""

    objects: ClaimObjects
    make_forecast: Callable[[], ClaimForecast | None]
    _waiting: BoundedMap[str, WaitingPod] = field(default_factory=lambda: BoundedMap(MAX_KEPT), init=False)
    _tried: BoundedMap[str, float] = field(default_factory=lambda: BoundedMap(MAX_KEPT), init=False)
    _created: BoundedMap[str, tuple[Choice, float]] = field(default_factory=lambda: BoundedMap(MAX_KEPT), init=False)
    """What this process has chosen and when, by NAMESPACE/NAME of the claim, until the claim is allocated or gone."""

    def apply(self, batch: Batch[WaitingPod]) -> None:
        """Apply changes from the watch of pods."""
        for change in batch.changes:
            self._waiting.pop(change.value.name.uid, None)
            if not isinstance(change, Gone):
                self._waiting[change.value.name.uid] = change.value

    async def step(self) -> int:
        """Create the claims of some pods; returns how many."""
        forecast = self.make_forecast() if self.can_write() and self.objects.complete and self._waiting else None
        created = 0
        for waiting in list(self._due()) if forecast is not None else ():
            if waiting.name.uid not in self._waiting:
                continue
            self._waiting.move_to_end(waiting.name.uid)
            self._tried[waiting.name.uid] = self.service.clock()
            try:
                asked = asked_by(waiting)
                choice = await self.service.offload(self._choose, asked, list(self._nodes(asked)), forecast)
                if choice is None or not await asyncio.to_thread(create_claim, self.client, waiting, choice):
                    continue
            except (WireError, KubeError, BudgetError) as error:
                LOG.warning("no claim for CPUs pod=%s/%s: %s", waiting.name.namespace, waiting.name.name, error)
                continue
            self._created[f"{waiting.name.namespace}/{waiting.claim}"] = choice, self.service.clock()
            LOG.info("claim for CPUs created pod=%s/%s choice=%s", waiting.name.namespace, waiting.name.name, choice)
            created += 1
        return created

    def _due(self) -> Iterator[WaitingPod]:
        since = self.service.clock() - AGAIN_SECONDS
        due = (
            each
            for each in self._waiting.values()
            if self._tried.get(each.name.uid, since) <= since and not self._has_claim(each)
        )
        return islice(due, A_STEP)

    def _has_claim(self, waiting: WaitingPod) -> bool:
        name = f"{waiting.name.namespace}/{waiting.claim}"
        return name in self._created or self.objects.claim(name) is not None

    def _taken(self, namespace: str) -> Mapping[str, int]:
        """The CPUs that claims without devices will get, by node.

        Annotations can be forged, so those of other namespaces do not count.
        """
        now = self.service.clock()
        for name, (_, at) in list(self._created.items()):
            claim = self.objects.claim(name)
            is_over = now - at > AGAIN_SECONDS if claim is None else claim.allocated is not None
            if is_over:
                del self._created[name]
        annotated = {name: each for name, each in self.objects.chosen().items() if name.startswith(f"{namespace}/")}
        taken: dict[str, int] = {}
        for each in {**annotated, **{name: choice for name, (choice, _) in self._created.items()}}.values():
            taken[each.node_name] = taken.get(each.node_name, 0) | each.cpus
        return taken

    def _nodes(self, asked: AskedCpus) -> Iterator[NodeCpus]:
        """The nodes whose CPUs are single devices, and that kube-scheduler's other filters do not refuse."""
        taken = self._taken(asked.workload.pod.namespace)
        wanted = pod_requests(asked.workload.pod, asked.workload.rules.overhead_milli)
        for name in islice(dict.fromkeys(self.objects.cpu_nodes), MAX_NODES):
            record = self.service.known.nodes.get(name)
            kubelet = None if record is None else record.observation.kubelet
            around = self.service.surroundings(name)
            if kubelet is None or check_node(name, wanted, asked.workload.rules, around).outcome == "fails":
                continue
            cpus = self.objects.cpus_on(name).items()
            free = bits_of(cpu for cpu, device in cpus if not device.claim) & kubelet.machine.all_cpus
            yield NodeCpus(name, kubelet.machine, free & ~taken.get(name, 0))

    def _choose(self, asked: AskedCpus, nodes: list[NodeCpus], forecast: ClaimForecast) -> Choice | None:
        """Runs in a thread."""
        pod, found = asked.workload.pod, list[NodeCpus]()
        for node in nodes if pod.has_claims else ():
            taken = forecast.take(pod, node.name, self.service.surroundings(node.name), is_new=False)
            if taken is not None and taken.around is None:
                continue  # kube-scheduler finds no devices there
            held = claimed_of(pod, taken.devices).get(asked.container, ()) if taken is not None else ()
            near = ~0
            for each in held:
                near &= each.numa or ~0
            found.append(node._replace(near=0 if near == ~0 else near))
        demanding = pod.demand.is_required
        return choose(found if pod.has_claims else nodes, asked.number, Budget(MAX_STEPS), is_demanding=demanding)


def create_claim(client: Requester, waiting: WaitingPod, choice: Choice) -> bool:
    """Whether the claim was created; else it exists already. Raises KubeError."""
    path = path_of("/apis/resource.k8s.io/v1", "resourceclaims", namespace=waiting.name.namespace)
    try:
        client.request("POST", path, body=dict(claim_for(waiting.name, waiting.claim, choice)))
    except ApiError as error:
        if error.status == 409:  # the watch has not shown it yet
            return False
        raise
    return True
