"""One node reports what its replay would never finish: the scheduler gets its answers all the same.

With the real program, over HTTP. The service ends its work after `filter_seconds`. How soon it answers then depends on
the machine, so that here only an answer counts; the drill measures the time.
"""

import signal
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import orjson
import pytest

from tests.faults import hostile_nodes
from tests.faults.hostile_nodes import NIC
from tests.faults.parts import Extender
from tests.reports import args_of, pod_of
from tests.waiting import A_DAY, PATIENCE_SECONDS, until

REPLAYED = 'numa_extender_judgements_total{source="replayed"}'
HONEST = ("honest-0", "honest-1", "honest-2")
ATTACKS = {
    "64 NUMA nodes": (hostile_nodes.many_numa_nodes("hostile"), pod_of(8)),
    "28 NUMA nodes": (hostile_nodes.many_numa_nodes("hostile", 28), pod_of(8)),
    "24 uneven NUMA nodes": (hostile_nodes.uneven_numa_nodes("hostile"), pod_of(60)),
    "1500 kinds of devices": (hostile_nodes.many_kinds_of_devices("hostile"), pod_of("500m", devices={NIC: 9})),
    "400 kinds of devices": (hostile_nodes.many_kinds_of_devices("hostile", 400), pod_of("500m", devices={NIC: 9})),
}


@pytest.fixture(scope="module")
def extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    settings = {"filter_seconds": 1.5, "stale_after_seconds": A_DAY}
    with Extender(tmp_path_factory.mktemp("hostile") / "log", **settings) as program:
        until(program.is_ready, "the extender")
        for name in HONEST:
            assert put(program, hostile_nodes.honest(name)) == 200
        yield program


def put(extender: Extender, report: dict[str, Any]) -> int:
    url = f"{extender.url}/v1/nodes/{report['node_name']}/report"
    return httpx.put(url, content=orjson.dumps(report), timeout=PATIENCE_SECONDS, trust_env=False).status_code


def filtered(extender: Extender, pod: dict[str, Any], *names: str) -> dict[str, Any]:
    """The answer; the replay of a hostile node would take much longer than we wait for it."""
    reply: dict[str, Any] | None = extender.post("/scheduler/filter", args_of(pod, *names))
    assert reply is not None, "no answer"
    return reply


def until_offered(extender: Extender, pod: dict[str, Any], *names: str, offered: Collection[str] = HONEST) -> None:
    """Call as the scheduler does, again and again, until these nodes are offered."""
    until(lambda: set(offered) <= set(filtered(extender, pod, *names)["NodeNames"] or ()), "an offer of the nodes")


def without_devices(pod: dict[str, Any], cpu: int) -> dict[str, Any]:
    """A pod of another shape that asks for CPUs only."""
    return pod_of(cpu, name=f"later-{cpu}", memory="64Mi") | {"status": pod["status"]}


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_scheduler_is_answered_whatever_one_node_reports(extender: Extender, attack: str) -> None:
    report, pod = ATTACKS[attack]
    report |= {"node_name": "attacker", "boot_id": attack}
    assert put(extender, report) == 200

    assert filtered(extender, pod, "attacker", *HONEST)["Error"] == ""
    if NIC not in str(pod) and pod["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "8":
        until_offered(extender, pod, "attacker", *HONEST)
    replayed = extender.metric(REPLAYED)
    for _ in range(2):  # a replay that ran out of time is tried once more, with few steps
        filtered(extender, pod, "attacker", *HONEST)
    assert extender.metric(REPLAYED) <= replayed + 1, "the cost is not paid again"

    for cpu in (1, 3, 5):
        until_offered(extender, without_devices(pod, cpu), *HONEST)  # without the node among the candidates
    alive = extender.get("/livez")
    assert alive is not None
    assert alive.status_code == 200


def test_a_node_that_becomes_hostile_while_it_surely_takes_pods(extender: Extender) -> None:
    """What changed since the last call is judged on the event loop first."""
    assert put(extender, hostile_nodes.honest("hostile")) == 200
    until_offered(extender, pod_of(8), "hostile", *HONEST, offered=["hostile"])
    assert put(extender, hostile_nodes.uneven_numa_nodes("hostile") | {"sequence": 2}) == 200

    for cpu in (8, 60, 61):
        filtered(extender, pod_of(cpu), "hostile", *HONEST)
    assert put(extender, hostile_nodes.honest("hostile") | {"sequence": 3}) == 200
    until_offered(extender, pod_of(8), "hostile", *HONEST, offered=["hostile", *HONEST])  # an honest report heals it


def test_sigterm_ends_the_process_during_long_replays(extender: Extender) -> None:
    for number in range(4):
        assert put(extender, hostile_nodes.uneven_numa_nodes(f"long-{number}", 24 - number)) == 200
    names = [f"long-{number}" for number in range(4)]
    with ThreadPoolExecutor(3) as callers:
        calls = [callers.submit(filtered, extender, pod_of(61 + i), *names) for i in range(3)]
        assert extender.kill(signal.SIGTERM) in (0, -signal.SIGTERM)
        for call in calls:
            with suppress(AssertionError):  # the process may have been gone before the call came
                call.result()
