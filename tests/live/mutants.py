"""Changed extenders that no scene may pass: `make live LIVE='--scene mixed --mutant refuses_all'`.

`python -m tests.live.mutants NAME serve …` makes the change and goes on as `python -m extender serve …`. What the
scenes found with them on the real parts is recorded in `test_bounds.py`.
"""

import asyncio
import importlib
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch


def refuses_all() -> None:
    """Filter refuses every node."""
    from extender.scheduling.filter import Filter
    from extender.scheduling.objections import refuse_all
    from extender.scheduling.reasons import RefusalReason

    original = Filter.filter

    async def refused(self: Any, args: Any) -> object:  # noqa: ANN401
        return refuse_all(await original(self, args), RefusalReason.UNKNOWN, "refused by the mutant")

    patch.object(Filter, "filter", refused).start()


def passes_all() -> None:
    """Filter passes every node, and bind checks nothing."""
    from extender.scheduling.bind import Bind
    from extender.scheduling.filter import Filter
    from extender.scheduling.objections import Filtered

    original = Filter.filter

    async def passed(self: Any, args: Any) -> object:  # noqa: ANN401
        await original(self, args)
        return Filtered(feasible=args.names)

    async def reserved(_self: Any, _call: object, reservation: Any) -> None:  # noqa: ANN401
        reservation.reserve()

    patch.object(Filter, "filter", passed).start()
    patch.object(Bind, "_reserve", reserved).start()


def forgets_in_flight() -> None:
    """A pod that is bound holds no room until a report of its node shows it."""
    from extender.cluster import ledger
    from extender.cluster.events import PodForgotten
    from extender.scheduling.reservation import Reservation

    commit = Reservation.commit

    def forgotten(self: Any) -> None:  # noqa: ANN401
        commit(self)
        self._cluster.apply(PodForgotten(self.node_name, self.pod.uid), now=self._clock())

    def unseen(known: Any, pod: Any, *_: object, **__: object) -> Any:  # noqa: ANN401
        return ledger.forget_mirrors(known, {pod.uid})

    patch.object(Reservation, "commit", forgotten).start()
    patch.object(ledger, "see", unseen).start()


def answers_late() -> None:
    """Filter answers a second after kube-scheduler has given up; the pod and its nodes are judged as ever."""
    from extender.scheduling.filter import Filter
    from tests.live.scheduling import shown_configuration

    original = Filter.filter
    (entry,) = shown_configuration()["extenders"]
    seconds = float(entry["httpTimeout"].removesuffix("s")) + 1

    async def late(self: Any, args: Any) -> object:  # noqa: ANN401
        await asyncio.sleep(seconds)
        return await original(self, args)

    patch.object(Filter, "filter", late).start()


def loses_watch() -> None:
    """The watch of pods delivers its first list and no later event. It counts all events, so /readyz stays 200."""
    from extender.kube.watch import Watch

    original = Watch.__init__

    def deaf(self: Any, client: Any, source: Any, deliver: Any, *more: Any, **named: Any) -> None:  # noqa: ANN401
        def listed_only(batch: Any) -> None:  # noqa: ANN401
            if batch.listed or not source.path.endswith("/pods"):
                deliver(batch)

        original(self, client, source, listed_only, *more, **named)

    patch.object(Watch, "__init__", deaf).start()


def never_wakes() -> None:
    """No refused pod is requeued."""
    from extender.features.requeue.feature import Requeuer

    async def nothing(_self: object) -> None:
        pass

    patch.object(Requeuer, "scan", nothing).start()


def keeps_size() -> None:
    """A pod counts as it was first seen on its node, whatever becomes of its size."""
    from extender.kube.pods import PodDecoder

    original, first = PodDecoder.__call__, dict[str, bytes]()

    def kept(self: Any, value: Any) -> Any:  # noqa: ANN401
        found = original(self, value)
        return found and (found[0], replace(found[1], reduced=first.setdefault(found[0], found[1].reduced)))

    patch.object(PodDecoder, "__call__", kept).start()


def keeps_configuration() -> None:
    """A node's kubelet is what its first report said, with its policies and options."""
    from extender.cluster.store import NodeStore

    original, first = NodeStore.observe, dict[str, Any]()

    def kept(self: Any, observation: Any, now: float) -> Any:  # noqa: ANN401
        kubelet = first.setdefault(observation.node_name, observation.kubelet)
        return original(self, replace(observation, kubelet=kubelet), now)

    patch.object(NodeStore, "observe", kept).start()


def hears_late() -> None:
    """No mutant, but a slow network: the watch of pods delivers everything 3 s after kube-scheduler's own."""
    from extender.kube.watch import Watch

    original = Watch.__init__

    def late(self: Any, client: Any, source: Any, deliver: Any, *more: Any, **named: Any) -> None:  # noqa: ANN401
        def after(batch: Any) -> None:  # noqa: ANN401
            if not batch.listed and source.path.endswith("/pods"):
                time.sleep(3)
            deliver(batch)

        original(self, client, source, after, *more, **named)

    patch.object(Watch, "__init__", late).start()


MUTANTS: Final[Mapping[str, Callable[[], None]]] = {
    each.__name__: each for each in (refuses_all, passes_all, forgets_in_flight, answers_late, loses_watch)
}
"""Those that break every load."""


def never_guards() -> None:
    """Pods on nodes that were asked for may be drained."""
    from extender.features.autoscaling.controller import Controller

    async def unguarded(*_: object) -> tuple[str, ...]:
        return ()

    patch.object(Controller, "_guard", unguarded).start()


def ignores_limits() -> None:
    """The limits of a NodePool of Karpenter are not looked at."""
    from extender.features.autoscaling import karpenter

    patch.object(karpenter, "_within", lambda _node_pool, _each, _waiting, most: (most, "")).start()


def never_vetoes() -> None:
    """The expander leaves no pool out."""
    from extender.features.autoscaling.expander import Expander

    async def passes(*_: object) -> bool:
        return False

    patch.object(Expander, "_refuses", passes).start()


def never_evicts() -> None:
    """The controller that makes room evicts nothing, and waits."""
    from extender.features.room.controller import RoomController

    async def nothing(*_: object) -> None:
        pass

    patch.object(RoomController, "_evict", nothing).start()


def never_holds() -> None:
    """Places that were found for a Workload are not held."""
    from extender.features.kueue.held import HeldPlaces

    patch.object(HeldPlaces, "hold", lambda *_: None).start()


def ignores_domains() -> None:
    """The nodes that Kueue has assigned to the pods of a Workload are not looked at."""
    from extender.features.kueue import workloads

    patch.object(workloads, "_domains", lambda topology, _path: [({}, _pods_of(topology))]).start()


def _pods_of(topology: Mapping[str, Any]) -> int:
    return sum(
        each["domainCount"] * counts["universal"] if "universal" in counts else sum(counts["individual"])
        for each in topology["slices"]
        for counts in [each["podCounts"]]
    )


CHANGES: Final = {
    **MUTANTS,
    **{
        each.__name__: each
        for each in (
            never_guards,
            ignores_limits,
            never_vetoes,
            never_evicts,
            never_holds,
            ignores_domains,
            never_wakes,
            keeps_size,
            keeps_configuration,
            hears_late,
        )
    },
}


def main(names: str, arguments: list[str]) -> None:
    """Make the changes of these names, with commas between them, and run the extender."""
    for name in names.split(","):
        CHANGES[name]()
    sys.argv = ["numa-extender", *arguments]
    importlib.import_module("extender.__main__").main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
