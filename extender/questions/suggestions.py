"""Finds the nearest requests that a node would admit instead of one that it refuses, by replaying candidates.

Rules of this file
- Every suggestion was replayed on the same state, and admitted with certainty as the pod demands. None is inferred.
  Admission is not monotone: nothing is concluded from a larger or a smaller request.
- The search is limited to `MAX_REPLAYS` admissions per node. Candidate amounts come from the free resources.
- For each kind, container and resource only the largest request that fits is returned.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

from extender.kubelet.admission import admit
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import Container
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import format_bytes, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.questions.free_room import numa_room
from extender.replay.alignment import alignment_of_outcomes
from extender.replay.pod import Pod
from extender.scheduling.judgement import refusal_by_demand
from extender.scheduling.node_totals import format_milli
from extender.wire.pod_replies import NearestRequest, SuggestionKind
from extender.wire.pools import FreeRoom
from extender.wire.verdicts import Verdict, explained

MAX_REPLAYS: Final = 160
MAX_AMOUNTS: Final = 24
"""How many amounts are tried for one resource of one container."""
_NEAR: Final = 8
_MIB: Final = 1 << 20
_SUMS_OF_NODES_UP_TO: Final = 8
_UNITS: Final = {"cpu": " CPUs", "memory": " of memory"}


class _ReplayCounter:
    """Counts replays, and makes no more after the limit."""

    def __init__(self, kubelet: Kubelet, state: ManagerState) -> None:
        self.kubelet, self.state, self.replays = kubelet, state, 0

    def fits(self, pod: Pod, kubelet: Kubelet | None = None) -> Verdict | None:
        """The outcome, if the pod is admitted whatever the kubelet picks at random. None too if no replays are left."""
        if self.replays >= MAX_REPLAYS:
            return None
        self.replays += 1
        asked, demand = kubelet or self.kubelet, pod.demand
        request = resolve(pod, asked.rules)
        outcome = admit(asked, self.state, request, verdict_only=not demand.is_required, max_replays=16)
        verdict, outcomes = outcome.verdict, (outcome, *outcome.alternatives)
        if not isinstance(verdict, Admitted) or verdict.certainty is not asked.certainty:
            return None
        if refusal_by_demand(demand, asked, request, outcomes, each_must=True) is not None:
            return None
        return explained(verdict, alignment_of_outcomes(asked, outcomes))


def nearest(kubelet: Kubelet, state: ManagerState, pod: Pod) -> tuple[list[NearestRequest], int]:
    """What to request instead of *pod*, which the kubelet refuses in *state*, and how many admissions were replayed."""
    search = _ReplayCounter(kubelet, state)
    room = numa_room(kubelet, state)
    found: list[NearestRequest] = []
    for container in pod.containers:
        found += _cpus(search, pod, container, [r.cpus for r in room.values()])
        found += _memory(search, pod, container, room_of=lambda name: [r.memory.get(name, 0) for r in room.values()])
        found += _devices(search, pod, container)
    if not found:
        for container in pod.containers:
            found += _smaller(search, pod, container, room.values())
    found += _settings(search, pod)
    return found, search.replays


def _cpus(search: _ReplayCounter, pod: Pod, container: Container, rooms: Iterable[int]) -> Iterator[NearestRequest]:
    wanted, rest = divmod(container.requests_milli.get("cpu", 0), 1000)
    if rest or not wanted or not search.kubelet.cpu_static or container.limits_milli.get("cpu") != wanted * 1000:
        return
    threads = max(1, search.kubelet.machine.cpus_per_core)

    attempt = _attempts(search, pod, container, "cpu")
    if wanted % threads:
        more = wanted + threads - wanted % threads
        fit = attempt(more)
        if fit is not None:
            yield _suggest("whole-cores", container, "cpu", (str(wanted), str(more)), fit)
    amounts = [*rooms, *_sums(rooms), *range(wanted - 1, wanted - 1 - _NEAR, -1), wanted * 3 // 4, wanted // 2, 1]
    yield from _largest("fewer-cpus", container, "cpu", wanted, amounts, attempt, str)


def _memory(
    search: _ReplayCounter, pod: Pod, container: Container, room_of: Callable[[str], list[int]]
) -> Iterator[NearestRequest]:
    if not search.kubelet.memory_static:
        return
    for name, milli in container.requests_milli.items():
        if not (name == "memory" or name.startswith("hugepages-")) or container.limits_milli.get(name) != milli:
            continue
        wanted, rooms, attempt = milli // 1000, room_of(name), _attempts(search, pod, container, name)
        amounts = [a - a % _MIB for a in (*rooms, *_sums(rooms), wanted * 3 // 4, wanted // 2, wanted // 4)]
        yield from _largest("less-memory", container, name, wanted, amounts, attempt, format_bytes)


def _devices(search: _ReplayCounter, pod: Pod, container: Container) -> Iterator[NearestRequest]:
    for name, milli in container.limits_milli.items():
        if name not in search.state.devices.devices or not milli:
            continue
        wanted, most = -(-milli // 1000), len(search.state.devices.devices[name])
        attempt = _attempts(search, pod, container, name)
        yield from _largest("fewer-devices", container, name, wanted, range(min(wanted - 1, most) + 1), attempt, str)


def _attempts(search: _ReplayCounter, pod: Pod, container: Container, resource: str) -> Callable[[int], Verdict | None]:
    """A function that replays the pod with another amount of the resource."""
    return lambda amount: search.fits(_with(pod, container, resource, amount * 1000))


def _smaller(
    search: _ReplayCounter, pod: Pod, container: Container, rooms: Iterable[FreeRoom]
) -> Iterator[NearestRequest]:
    """The pod with what one NUMA node has of every resource, starting with the NUMA node with most CPUs."""
    for room in sorted(rooms, key=lambda r: r.cpus, reverse=True)[:_NEAR]:
        free = {"cpu": room.cpus, **room.memory, **room.devices}
        wanted = {name: milli for name, milli in container.limits_milli.items() if name in free}
        instead = {name: min(milli, free[name] * 1000) for name, milli in wanted.items()}
        changed = [name for name in wanted if instead[name] != wanted[name]]
        if len(changed) < 2 or not all(instead.values()):
            continue
        smaller = pod
        for name in changed:
            current = next(c for c in smaller.containers if c.name == container.name)
            smaller = _with(smaller, current, name, instead[name])
        fit = search.fits(smaller)
        if fit is not None:
            before, after = (_amounts({name: each[name] for name in changed}) for each in (wanted, instead))
            yield _suggest("smaller", container, None, (before, after), fit)
            return


def _amounts(milli: Mapping[str, int]) -> str:
    return " and ".join(f"{format_milli(name, amount)}{_UNITS.get(name, f' {name}')}" for name, amount in milli.items())


def _largest(
    kind: SuggestionKind,
    container: Container,
    resource: str,
    wanted: int,
    amounts: Iterable[int],
    attempt: Callable[[int], Verdict | None],
    shown: Callable[[int], str],
) -> Iterator[NearestRequest]:
    """The largest of *amounts* below *wanted* that fits. None if none fits."""
    least = 0 if kind == "fewer-devices" else 1
    for amount in sorted({a for a in amounts if least <= a < wanted}, reverse=True)[:MAX_AMOUNTS]:
        fit = attempt(amount)
        if fit is not None:
            yield _suggest(kind, container, resource, (shown(wanted), shown(amount)), fit)
            return


def _suggest(
    kind: SuggestionKind, container: Container, resource: str | None, amounts: tuple[str, str], fit: Verdict
) -> NearestRequest:
    """A suggestion. If *resource* is None, each amount names its own."""
    wanted, instead = amounts
    unit = "" if resource is None else _UNITS.get(resource, f" {resource}")
    return NearestRequest(
        kind=kind,
        change=f"{instead}{unit} instead of {wanted} in container {container.name}",
        container=container.name,
        resource=resource,
        wanted=wanted,
        instead=instead,
        verdict=fit,
    )


def _settings(search: _ReplayCounter, pod: Pod) -> Iterator[NearestRequest]:
    """Other topology settings of the node, with its pods in place.

    Settings with which no kubelet starts are skipped.
    """
    kubelet = search.kubelet
    other_scope = Scope.POD if kubelet.scope is Scope.CONTAINER else Scope.CONTAINER
    changes: list[tuple[SuggestionKind, str, str, Mapping[str, str]]] = [
        ("topology-scope", kubelet.scope, other_scope, {"topology_manager_scope": other_scope})
    ]
    changes += [
        ("topology-policy", kubelet.policy, policy, {"topology_manager_policy": policy})
        for policy in (TopologyPolicy.SINGLE_NUMA_NODE, TopologyPolicy.RESTRICTED, TopologyPolicy.BEST_EFFORT)
        if policy is not kubelet.policy
    ]
    for kind, now, instead, change in changes:
        try:
            other = replace(start(kubelet.machine, replace(kubelet.config, **change)), runtime=kubelet.runtime)  # type: ignore[arg-type]
        except KubeletConfigError:
            continue
        fit = search.fits(pod, other)
        if fit is not None:
            setting = kind.replace("-", " ")
            yield NearestRequest(
                kind=kind,
                change=f"{setting} {instead} instead of {now} on the node",
                container=None,
                resource=None,
                wanted=now,
                instead=instead,
                verdict=fit,
            )


def _sums(rooms: Iterable[int]) -> list[int]:
    """Sums of two NUMA nodes, for requests that need more than one."""
    few = list(rooms)[:_SUMS_OF_NODES_UP_TO]
    return [a + b for a, b in combinations(few, 2)]


def _with(pod: Pod, container: Container, resource: str, milli: int) -> Pod:
    """The pod with another amount in one container, for requests and limits alike.

    An amount of 0 removes the request.
    """

    def changed(amounts: Mapping[str, int]) -> dict[str, int]:
        rest = {name: amount for name, amount in amounts.items() if name != resource}
        return {**rest, resource: milli} if resource in amounts and milli else rest

    other = replace(
        container,
        requests_milli=changed(container.requests_milli),
        limits_milli=changed(container.limits_milli),
        allocated_milli=None,
    )
    return replace(pod, containers=tuple(other if c is container else c for c in pod.containers))
