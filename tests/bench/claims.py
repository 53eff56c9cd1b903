"""Prioritize of pods with claims and without, beside the same calls with the setting `dra` off; without HTTP.

    python -m tests.bench.claims [--nodes 500]

Each node is in a state of its own and has a device of a DRA driver on each NUMA node. Calls with the setting and
without it alternate, and the order changes, so that other work on the machine meets both. CPU time of the process.
`first` is a pod shape that was never asked for; `repeated` is one that was.
"""

import asyncio
import itertools
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from extender.app import make_service
from extender.config.settings import Settings
from extender.features.claims.devices import DynamicDevices, PublishedDevices
from extender.features.claims.ranking import ClaimRanking
from extender.questions.node_context import DynamicDevice
from extender.scheduling.objections import Objector
from extender.scheduling.prioritize import Prioritize
from extender.scheduling.shared import Effects, SharedParts
from extender.wire.scheduler import parse_args
from tests.bench.states import own_states
from tests.observations import observation_of
from tests.reports import args_of, pod_of

NODES = 500
CALLS, WARM_UP_CALLS = 60, 10
Json = dict[str, Any]


def run(console: Console) -> None:
    """Measure and print."""
    asyncio.run(measure(NODES, console))


async def measure(count: int, console: Console) -> None:
    """Measure prioritize of *count* nodes."""
    service, devices, names = make_service(Settings(port=0)), DynamicDevices(), [f"n{i}" for i in range(count)]
    for name, node in zip(names, own_states(), strict=False):
        service.known.nodes.observe(replace(observation_of(name, node), node_name=name), service.clock())
        listed = tuple(DynamicDevice("gpu.example.com", name, f"gpu-{numa}", 1 << numa) for numa in (0, 1))
        published = PublishedDevices(node_name=name, pool=f"gpu.example.com/{name}", generation=1, devices=listed)
        devices.set_slice(name, published)
    devices.complete = True
    ranking = ClaimRanking(devices, asyncio.to_thread, clock=service.clock)
    effects = Effects(clock=service.clock, sleep=asyncio.sleep, offload=asyncio.to_thread, metrics=service.metrics)
    shared = SharedParts(known=service.known, judge=service.judging, records=service.records, effects=effects)
    asked: Sequence[list[Objector]] = ([], [ranking])
    off, on = (Prioritize(60, replace(shared, objectors=each)) for each in asked)  # the judgements are shared
    table = Table(title=f"prioritize, {count} nodes in {count} states: CPU ms of a call")
    for heading in ("pod", "request", "off", "on", "x off"):
        table.add_column(heading, justify="left" if heading in ("pod", "request") else "right")
    for (pod, has_claim), (request, is_new) in itertools.product(
        (("without claims", False), ("with a claim", True)), (("repeated", False), ("first", True))
    ):
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(WARM_UP_CALLS + CALLS):
            body = _body(turn if is_new else -1, names, has_claim=has_claim)
            args = parse_args(body)
            await service.judging.answer_nodes(service.judging.entry(args.pod), args.names, service.clock())
            for verb, found in ((off, times[0]), (on, times[1]))[:: 1 if turn % 2 else -1]:
                started = time.process_time()
                await verb.prioritize(parse_args(body))
                if turn >= WARM_UP_CALLS:
                    found.append(1000 * (time.process_time() - started))
        plain, ranked = map(statistics.median, times)
        table.add_row(pod, request, f"{plain:.2f}", f"{ranked:.2f}", f"{ranked / plain:.2f}")
    console.print(table)


def _body(number: int, names: list[str], *, has_claim: bool) -> bytes:
    cpus, memory = (2 + number % 24, f"{1024 + number}Mi") if number >= 0 else (8, "16Gi")
    pod: Json = pod_of(cpus, memory, name=f"p{number}")
    if has_claim:
        pod["spec"]["resourceClaims"] = [{"name": "device", "resourceClaimName": "gpu"}]
        pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]
    random.Random(number).shuffle(names)
    return orjson.dumps(args_of(pod, *names))


@click.command()
@click.option("--nodes", default=NODES, show_default=True, type=click.IntRange(20))
def main(nodes: int) -> None:
    """Measure and print."""
    asyncio.run(measure(nodes, Console(width=110 if not sys.stdout.isatty() else None)))


if __name__ == "__main__":
    main()
