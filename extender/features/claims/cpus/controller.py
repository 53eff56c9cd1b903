"""Creates the claims for CPUs that pods wait for.

A pod asks for it with the label `LABEL`: the name of an entry of its `spec.resourceClaims`, whose claim does not exist.
kube-scheduler does not try the pod before the claim exists. The claim is for as many CPUs as the container requests
that uses it.

Rules of this file
- kube-scheduler alone allocates: a claim names the CPUs that it may allocate. If they are taken meanwhile, the pod
  waits as for any device. Filter offers the chosen node alone, as long as it is feasible.
- The pod's other claims are predicted first, and the CPUs are chosen near their devices.
- A claim is created once, and is never changed or deleted: it is owned by the pod.
- CPUs that were chosen for a claim are not chosen again before it is allocated, as long as a pod waits for the claim:
  without a pod, anyone who may create claims could keep all CPUs.
- Only the leader creates claims, of at most `A_STEP` pods in a step, from the namespaces in turn. A pod for which no
  CPUs were found is tried again after `AGAIN_SECONDS`.

The calls that write count as those of the ServiceAccount `ACCOUNT`, which the extender may impersonate. RBAC: pods
`list`, `watch`, `get`; resourceclaims of resource.k8s.io `create`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from typing import Any, Final, NamedTuple

from extender.bounded import BoundedMap
from extender.features.claims.cpus.choice import MAX_CPUS, Choice, NodeCpus, choose, claim_for
from extender.features.claims.objects import ClaimObjects
from extender.kube.changes import Batch, Gone
from extender.kube.client import Requester, path_of
from extender.kube.errors import ApiError, KubeError
from extender.kube.objects import ObjectName, items, mapping, name_of, strings, text
from extender.kube.pod_objects import read_pod
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
from extender.wire.errors import WireError
from extender.wire.workloads import PodWorkload, workload_from_json

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())
LABEL: Final = "numa-extender.io/cpu-claim"
ACCOUNT: Final = "numa-extender-dra-choice"
A_STEP: Final = 4
MAX_NODES: Final = 500
"""Nodes that are looked at for one pod."""
MAX_STEPS: Final = 100_000
MAX_KEPT: Final = 1_000
"""How many choices are kept, namespaces with waiting pods, and waiting pods of one namespace: the last ones."""
AGAIN_SECONDS: Final = 10.0
MAX_LOOKED: Final = 16
"""Namespaces whose pods are looked at in a step."""


class WaitingPod(NamedTuple):
    """A pod without a node that asks for CPUs. `claim`: the name of the claim that it waits for."""

    name: ObjectName
    claim: str


def decode_waiting(value: Mapping[str, Any]) -> tuple[str, WaitingPod] | None:
    """The UID and the pod; None: it asks for nothing."""
    entry, spec = strings(mapping(value, "metadata"), "labels").get(LABEL, ""), mapping(value, "spec")
    claims = (text(each, "resourceClaimName") for each in items(spec, "resourceClaims") if each.get("name") == entry)
    claim = next(claims, "") if entry else ""
    return (name_of(value).uid, WaitingPod(name_of(value), claim)) if claim else None


WAITING: Final = Source(path="/api/v1/pods", decode=decode_waiting, field_selector="spec.nodeName=")
"""Pods without a node. Only those that ask are kept."""


class AskedCpus(NamedTuple):
    """How many CPUs, for which container, and the pod with its other claims alone."""

    number: int
    container: str
    workload: PodWorkload


def asked_by(manifest: dict[str, Any]) -> AskedCpus:
    """What the v1.Pod asks for. It is changed.

    Raises:
        WireError: it cannot be read, or not exactly one container uses the claim and requests 1 to 32 whole CPUs.
    """
    spec, entry = manifest["spec"], strings(mapping(manifest, "metadata"), "labels").get(LABEL, "")
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
    """The controller of one service. *client*: acts as `ACCOUNT`. *make_forecast*: predicts the pod's other claims."""

    objects: ClaimObjects
    make_forecast: Callable[[], ClaimForecast | None]
    _waiting: BoundedMap[str, BoundedMap[str, WaitingPod]] = field(
        default_factory=lambda: BoundedMap(MAX_KEPT), init=False
    )
    """By namespace and claim. A namespace without waiting pods has no entry."""
    _tried: BoundedMap[str, float] = field(default_factory=lambda: BoundedMap(MAX_KEPT), init=False)
    _created: BoundedMap[str, Choice] = field(default_factory=lambda: BoundedMap(MAX_KEPT), init=False)
    """What this process has chosen, by NAMESPACE/NAME of the claim, until the watch shows the claim."""

    def apply(self, batch: Batch[WaitingPod]) -> None:
        """Apply changes from the watch of pods."""
        for change in batch.changes:
            name = change.value.name
            here = self._waiting.get(name.namespace) or BoundedMap(MAX_KEPT)
            if not isinstance(change, Gone):
                here[change.value.claim] = change.value
                self._waiting.setdefault(name.namespace, here)
            elif (known := here.get(change.value.claim)) is not None and known.name.uid == name.uid:
                del here[known.claim]
                if not here:
                    del self._waiting[name.namespace]

    async def step(self) -> int:
        """Create the claims of some pods; returns how many."""
        forecast = self.make_forecast() if self.can_write() and self.objects.complete and self._waiting else None
        if forecast is None:
            return 0
        created = 0
        for waiting in self._due():
            name = waiting.name
            try:
                choice = await self._create(waiting, forecast)
            except (WireError, KubeError, BudgetError) as error:
                LOG.warning("no claim for CPUs pod=%s/%s: %s", name.namespace, name.name, error)
                continue
            if choice is not None:
                LOG.info("claim for CPUs created pod=%s/%s choice=%s", name.namespace, name.name, choice)
                created += 1
        return created

    async def _create(self, waiting: WaitingPod, forecast: ClaimForecast) -> Choice | None:
        """Create the claim of a pod; None: there are no CPUs for it, or the pod is gone."""
        name = waiting.name
        pod = await asyncio.to_thread(read_pod, self.client, name.namespace, name.name, name.uid)
        if pod is None:
            return None
        asked = await asyncio.to_thread(asked_by, pod)
        nodes = [each async for each in self._nodes(asked)]
        choice = await self.service.offload(self._choose, asked, nodes, forecast)
        if choice is None or not await asyncio.to_thread(create_claim, self.client, waiting, choice):
            return None
        self._created[f"{name.namespace}/{waiting.claim}"] = choice
        return choice

    def _due(self) -> list[WaitingPod]:
        """Pods of some namespaces in turn. Those that were looked at before come last."""
        namespaces = list(islice(self._waiting, MAX_LOOKED))
        turns = chain.from_iterable(zip_longest(*map(self._due_in, namespaces)))
        found = list(islice((each for each in turns if each is not None), A_STEP))
        for namespace in (*namespaces, *(each.name.namespace for each in found)):
            self._waiting.move_to_end(namespace)
        for each in found:
            self._waiting[each.name.namespace].move_to_end(each.claim)
            self._tried[each.name.uid] = self.service.clock()
        return found

    def _due_in(self, namespace: str) -> Iterator[WaitingPod]:
        since = self.service.clock() - AGAIN_SECONDS
        for each in self._waiting[namespace].values():
            is_due = self._tried.get(each.name.uid, since) <= since
            if is_due and self.objects.claim(f"{namespace}/{each.claim}") is None:
                yield each

    async def _nodes(self, asked: AskedCpus) -> AsyncIterator[NodeCpus]:
        """The nodes whose CPUs are single devices, and that kube-scheduler's other filters do not refuse."""
        for name in [name for name in self._created if self.objects.claim(name) is not None]:
            del self._created[name]
        taken: dict[str, int] = {}
        for name, each in {**self.objects.chosen, **self._created}.items():
            namespace, _, claim = name.partition("/")
            if claim in self._waiting.get(namespace, ()):
                taken[each.node_name] = taken.get(each.node_name, 0) | each.cpus
        wanted = pod_requests(asked.workload.pod, asked.workload.rules.overhead_milli)
        for name in list(islice(self.objects.cpu_nodes, MAX_NODES)):
            record = self.service.known.nodes.get(name)
            kubelet = None if record is None else record.observation.kubelet
            around = self.service.surroundings(name)
            if kubelet is None or check_node(name, wanted, asked.workload.rules, around).outcome == "fails":
                continue
            await asyncio.sleep(0)  # a node has up to a thousand CPUs
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
