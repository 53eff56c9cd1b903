"""How long filter waits for the bind calls of other pods."""

import asyncio
import time

from extender.features.claims.coming import MAX_COMING, MOST_SECONDS, WAITS_PER_SECOND, ComingPods

NODES = ("node-a",)


def test_a_filter_call_waits_until_the_other_pod_is_bound() -> None:
    async def run() -> tuple[bool, float]:
        coming = ComingPods(time.monotonic)
        coming.arrived("first")
        coming.passed("other", NODES)
        asyncio.get_running_loop().call_later(0.05, coming.arrived, "other")
        started = time.monotonic()
        waited = await coming.wait("pod", NODES, (), 10.0)
        return waited, time.monotonic() - started

    waited, seconds = asyncio.run(run())
    assert waited
    assert seconds < MOST_SECONDS, "it ended with the bind call, not with the limit"


def test_no_call_waits_twice_for_a_pod_that_does_not_come() -> None:
    async def run() -> list[bool]:
        coming = ComingPods(lambda: 0.0)
        coming.arrived("first")
        coming.passed("other", NODES)
        return [await coming.wait("pod", NODES, (), 0.01) for _ in range(2)]

    assert asyncio.run(run()) == [True, False]


def test_pods_that_are_never_bound_cost_kube_scheduler_at_most_a_tenth_of_its_time() -> None:
    """A tenant can have any number of pods that filter offers a node, and whose bind call never comes."""

    async def run() -> float:
        coming = ComingPods(time.monotonic)
        coming.arrived("first")
        started, spent = time.monotonic(), 0.0
        for number in range(10 * MAX_COMING):
            coming.passed(f"other-{number}", NODES)
            before = time.monotonic()
            await coming.wait("pod", NODES, (), 0.5)
            spent += time.monotonic() - before
            if time.monotonic() - started > 10.0:
                break
        return spent - (time.monotonic() - started) * WAITS_PER_SECOND

    assert asyncio.run(run()) < MOST_SECONDS + 1.0
