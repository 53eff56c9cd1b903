"""Filter and prioritize of pods with claims, beside the same calls of pods without; without HTTP.

    python -m tests.bench.claims [--nodes 500] [--profile]

Each node is in a state of its own and has 8 GPUs of a DRA driver. kube-scheduler's choice is predicted. Calls of the
kinds of pods take turns, so that other work on the machine meets all of them. CPU time of the process. `first` is a
pod shape, with a claim, that was never asked for; `repeated` is one that was. `in flight`: a pod of the same shape was
filtered before, and its claim is not written. `us a node`: of the search for devices alone, for a new claim.
"""

import asyncio
import cProfile
import pstats
import random
import statistics
import sys
import time
from dataclasses import replace
from itertools import count
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from extender.app import make_service, set_up_collector
from extender.config.settings import Settings
from extender.dra.rules import rules_for
from extender.features.claims import objector, ranking
from extender.features.claims.call_forecast import NodeJudge, SearchLimits
from extender.features.claims.feed import decode_claim, decode_class, decode_slice
from extender.features.claims.forecast import Forecasts
from extender.features.claims.objector import ClaimCheck
from extender.features.claims.objects import ClaimObjects
from extender.features.claims.ranking import ClaimRanking
from extender.questions.node_context import NOTHING_KNOWN
from extender.scheduling.effects import Effects
from extender.scheduling.filter import Filter
from extender.scheduling.prioritize import Prioritize
from extender.scheduling.shared import SharedParts
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import parse_args
from tests.bench.states import own_states
from tests.observations import observation_of
from tests.reports import args_of, pod_of

NODES, DEVICES = 500, 8
CALLS, WARM_UP_CALLS = 12, 3
DRIVER = "gpu.example.com"
Json = dict[str, Any]
KINDS = ("without claims", "with a claim", "with a claim and a demand")


def run(console: Console) -> None:
    """Measure and print."""
    asyncio.run(measure(NODES, console))


class Claims:
    """A service with nodes and devices. `names`: of the nodes."""

    def __init__(self, number_of_nodes: int) -> None:
        service = make_service(Settings(port=0))
        self.names = [f"n{i}" for i in range(number_of_nodes)]
        self.objects = ClaimObjects(rules_for("1.36.3"), service.clock)
        self.forecasts = Forecasts(self.objects, lambda _result: None)
        for name, node in zip(self.names, own_states(), strict=False):
            service.known.nodes.observe(replace(observation_of(name, node), node_name=name), service.clock())
            self.objects.set_slice(name, (decode_slice(_slice(name)) or (name, None))[1])
        expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
        gpu = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}
        self.objects.set_class("gpu", (decode_class(gpu) or ("", None))[1])
        self.objects.complete = self.forecasts.is_complete = True
        effects = Effects(clock=service.clock, sleep=asyncio.sleep, offload=asyncio.to_thread, metrics=service.metrics)
        shared = SharedParts(known=service.known, judge=service.judging, records=service.records, effects=effects)
        ranking = ClaimRanking(self.objects, asyncio.to_thread, self.forecasts, clock=service.clock)
        shared = replace(shared, objectors=[ClaimCheck(service, self.objects, self.forecasts), ranking])
        self.filter = Filter(60, shared)
        self.prioritize = Prioritize(60, shared)
        self._shapes = count(1)
        self._pods = count(1)

    async def milliseconds(self, kind: str, *, is_new: bool) -> tuple[float, float]:
        """CPU time of filter, and of prioritize for all nodes."""
        shape = next(self._shapes) if is_new else 0
        uid = f"p{next(self._pods)}"
        pod: Json = pod_of(2 + shape % 24, f"{1024 + shape}Mi", name=uid)
        if kind == KINDS[2]:
            pod["metadata"]["annotations"] = {"numa-extender.io/alignment": "single-numa-node"}
        if kind != KINDS[0]:
            self.put(uid, shape)
            pod["spec"]["resourceClaims"] = [{"name": "device", "resourceClaimName": uid}]
            pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]
        random.Random(shape).shuffle(self.names)
        body = orjson.dumps(args_of(pod, *self.names))
        started = time.process_time()
        await self.filter.filter(parse_args(body))
        filtered = time.process_time()
        await self.prioritize.prioritize(parse_args(body))
        return 1000 * (filtered - started), 1000 * (time.process_time() - filtered)

    def put(self, name: str, shape: int) -> None:
        """A claim. Claims of one shape ask for the same."""
        selectors = [{"cel": {"expression": f"device.attributes['{DRIVER}'].index != {shape + 100}"}}]
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors}
        spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
        found = decode_claim({"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        self.objects.set_claim(f"default/{name}", None if found is None else found[1])

    def land(self) -> None:
        """Nothing is in flight any longer: the claims are gone."""
        for name in self.objects.pending():
            self.objects.set_claim(name, None)

    def search_microseconds(self) -> float:
        """CPU time of the search for a new claim, a node."""
        self.put("search", next(self._shapes))
        pod = replace(pod_from_json(pod_of(2, "1Gi", name="search")), claims=("default/search",))
        call, started = self.forecasts.call(pod), time.process_time()
        if call is not None:
            limits = SearchLimits(lambda _name: NOTHING_KNOWN, lambda: False)
            call.judged(self.names, [0] * len(self.names), NodeJudge("", lambda _, devices: len(devices), len), limits)
        return 1e6 * (time.process_time() - started) / len(self.names)


async def measure(number_of_nodes: int, console: Console) -> None:
    """Measure calls about *number_of_nodes* nodes. The limits of calls are left out: they are of the wall clock."""
    objector.FORECAST_SECONDS = ranking.RANKING_SECONDS = 3600.0  # type: ignore[misc]
    set_up_collector()
    claims = Claims(number_of_nodes)
    table = Table(title=f"{number_of_nodes} nodes with {DEVICES} devices: CPU ms of a call")
    for heading in ("pod", "request", "filter", "prioritize", "x without claims"):
        table.add_column(heading, justify="left" if heading in ("pod", "request") else "right")
    for request in ("first", "repeated", "in flight"):
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for turn in range(WARM_UP_CALLS + CALLS):
            for kind in KINDS:
                if request != "in flight":
                    claims.land()
                found = await claims.milliseconds(kind, is_new=request == "first")
                times[kind] += [found] if turn >= WARM_UP_CALLS else []
        plain = [statistics.median(each) for each in zip(*times[KINDS[0]], strict=True)]
        for kind in KINDS:
            both = [statistics.median(each) for each in zip(*times[kind], strict=True)]
            table.add_row(kind, request, f"{both[0]:.1f}", f"{both[1]:.1f}", f"{sum(both) / sum(plain):.2f}")
        claims.land()
    console.print(table)
    console.print(f"search for devices: {claims.search_microseconds():.0f} us a node")


def _slice(name: str) -> Json:
    devices = [
        {
            "name": f"gpu-{i}",
            "attributes": {
                "type": {"string": "gpu"},
                "index": {"int": i},
                "uuid": {"string": f"GPU-{name}-{i}"},
                "productName": {"string": "a product"},
                "driverVersion": {"version": "1.2.3"},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{i:02}"},
                "resource.kubernetes.io/numaNode": {"int": i * 2 // DEVICES},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for i in range(DEVICES)
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}}


@click.command()
@click.option("--nodes", default=NODES, show_default=True, type=click.IntRange(20))
@click.option("--profile", is_flag=True, help="Show where the time goes.")
def main(nodes: int, *, profile: bool) -> None:
    """Measure and print."""
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    asyncio.run(measure(nodes, Console(width=110 if not sys.stdout.isatty() else None)))
    if profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(40)


if __name__ == "__main__":
    main()
