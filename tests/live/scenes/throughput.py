"""Pods a second: without an extender, beside one that only answers, and with ours, in one run.

Ours gets pods of one shape and, in turn, pods of many. `strategies` plays those of many shapes with each strategy.
Left out: exporters and files of kubelets, pods that end, and nodes of several shapes.
"""

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from extender.scheduling.ranking.strategies import STRATEGIES
from tests.live.api import AsyncApi, Json
from tests.live.binaries import Binaries
from tests.live.book import Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.fake_nodes import FakeNodes
from tests.live.installing import forget
from tests.live.load import audit_of, counted, show_audit
from tests.live.processes import Program, SceneError, until
from tests.live.report import Findings
from tests.live.workload import PODS as PATH
from tests.live.workload import create, simple_pod

SIZES = (200, 1000)
PODS, ROUNDS = 200, 3
"""Pods of one round of one mode. The modes take turns, so that a busy machine is busy for all of them."""
PATIENCE_SECONDS = 600.0
"""A pod that waits longer ends the scene."""
CPU_OF_ECHO = 3.0
"""Processor time a pod may be so many times that of the echo."""
MIXED_FACTOR = 1.5
"""Pods of many shapes may cost so many times that."""
NODES_OF_STRATEGIES = 300


@dataclass(frozen=True, slots=True)
class Measured:
    """One mode. `cpu_ms`: processor time of the extender for each pod."""

    rate: float
    cpu_ms: float


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """The last of the pods is awaited. This process makes the reports of fake nodes, for ours and for the echo."""
    findings = Findings("throughput")
    pods, rounds = plan.pods or PODS, plan.rounds or ROUNDS
    findings.show("pods, rounds", f"{pods}, {rounds}")
    for count in [plan.nodes] if plan.nodes else SIZES:
        found: dict[str, list[Measured]] = {mode: [] for mode in ("none", "echo", "ours", "mixed")}
        with _fakes(binaries, plan, say, count) as (running, fakes):
            ours = running.extender
            for number in range(rounds):
                found["none"].append(_measure(running, fakes, f"none-{number}", pods, None, None))
                found["echo"].append(_with_echo(running, fakes, f"echo-{number}", pods))
                found["ours"].append(_measure(running, fakes, f"ours-{number}", pods, ours.url, ours))
                found["mixed"].append(_measure(running, fakes, f"mixed-{number}", pods, ours.url, ours))
            binds, audit = ours.binds(), audit_of(ours, say)
        rates = {mode: statistics.median(each.rate for each in measured) for mode, measured in found.items()}
        cpu = {mode: statistics.median(each.cpu_ms for each in measured) for mode, measured in found.items()}
        most = CPU_OF_ECHO * cpu["echo"]
        shown = f"{cpu['echo']:.1f}, {cpu['ours']:.1f}, {cpu['mixed']:.1f}"
        what, bound = (
            f"{count} nodes: ms of CPU a pod, echo, ours, many shapes",
            f"ours at most {most:.1f}, many shapes",
        )
        ok = cpu["ours"] <= most and cpu["mixed"] <= MIXED_FACTOR * most
        findings.must(what, shown, f"{bound} {MIXED_FACTOR * most:.1f}", ok=ok)
        share, of_mixed = rates["ours"] / rates["echo"], rates["mixed"] / rates["echo"]
        shown = ", ".join(f"{rate:.0f}" for rate in rates.values())
        what = f"{count} nodes: pods/s without, echo, ours, many shapes (medians); of the echo's"
        findings.must(what, f"{shown}; {share:.0%}, {of_mixed:.0%}", "ours at least 90%", ok=share >= 0.9)
        all_pods = 2 * pods * rounds
        what, ok = f"{count} nodes: bind calls of ours", binds["bound"] == all_pods
        findings.must(what, counted(binds), f"{all_pods} bound", ok=ok)
        show_audit(findings, audit, all_pods)
        findings.must(f"{count} nodes: refused after binding", len(fakes.refused), "0", ok=not fakes.refused)
        findings.details += fakes.refused[:5]
    return findings


def play_strategies(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Pods of many shapes with each strategy of ours in turn, beside the echo."""
    findings = Findings("strategies")
    pods, rounds, count = plan.pods or PODS, plan.rounds or ROUNDS, plan.nodes or NODES_OF_STRATEGIES
    found: dict[str, list[Measured]] = {mode: [] for mode in ("echo", *STRATEGIES)}
    audits: Counter[str] = Counter()
    with _fakes(binaries, plan, say, count) as (running, fakes):
        ours = running.extender
        for number in range(rounds):
            found["echo"].append(_with_echo(running, fakes, f"echo-{number}", pods))
            for strategy in STRATEGIES:
                ours.stop()
                ours.environment["NUMA_EXTENDER_STRATEGY"] = strategy
                ours.start()
                until(ours.metrics, 60, "the extender answers", program=ours)
                found[strategy].append(_measure(running, fakes, f"{strategy}-{number}", pods, ours.url, ours))
                audits += audit_of(ours, say)
    findings.show("nodes, pods, rounds", f"{count}, {pods}, {rounds}")
    echo = statistics.median(each.cpu_ms for each in found["echo"])
    rate = statistics.median(each.rate for each in found["echo"])
    most = MIXED_FACTOR * CPU_OF_ECHO * echo
    for strategy in STRATEGIES:
        cpu = statistics.median(each.cpu_ms for each in found[strategy])
        share = statistics.median(each.rate for each in found[strategy]) / rate
        what, shown = f"{strategy}: ms of CPU a pod, echo, ours; pods/s of the echo's", f"{echo:.1f}, {cpu:.1f}"
        findings.must(what, f"{shown}; {share:.0%}", f"ours at most {most:.1f}", ok=cpu <= most)
    show_audit(findings, audits, len(STRATEGIES) * pods * rounds)
    findings.must("refused after binding", len(fakes.refused), "0", ok=not fakes.refused)
    return findings


@contextmanager
def _fakes(binaries: Binaries, plan: Plan, say: Say, count: int) -> Iterator[tuple[Cluster, FakeNodes]]:
    with cluster(binaries, replace(plan, nodes=0), say, nodes=0) as running:
        fakes = FakeNodes(AsyncApi(running.plane.url, running.plane.admin_context), count)
        try:
            running.nodes.loop.run(fakes.register(), 900)
            say(f"{count} Node objects are there")
            yield running, fakes
        finally:
            running.nodes.loop.run(fakes.close())


def _with_echo(running: Cluster, fakes: FakeNodes, mode: str, pods: int) -> Measured:
    with running.extender.echo() as echo:
        return _measure(running, fakes, mode, pods, echo.url, echo)


def _measure(
    running: Cluster, fakes: FakeNodes, mode: str, pods: int, extender_url: str | None, program: Program | None
) -> Measured:
    """All pods are there before the scheduler starts; from the first binding to the last."""
    api, loop = running.plane.api, running.nodes.loop
    loop.run(fakes.begin(extender_url), 900)
    if program is running.extender:
        running.extender.wait_for_nodes(len(fakes.names))
    for number in range(pods):
        create(api, _pod(mode, number))
    running.scheduler.configure(extender_url)
    before = program.cpu_seconds() if program else 0.0
    with Book(running.plane.url, running.plane.admin_context) as book:
        with running.scheduler:
            if not book.wait(lambda: sum(bool(e.node) for e in book.entries()) >= pods, PATIENCE_SECONDS):
                raise SceneError(f"{mode}: not all of {pods} pods were bound within {PATIENCE_SECONDS:.0f} s")
            used = (program.cpu_seconds() if program else 0.0) - before
        times = sorted(entry.bound_at for entry in book.entries() if entry.bound_at is not None)
    rate = (len(times) - 1) / (times[-1] - times[0])
    between = statistics.median(b - a for a, b in itertools.pairwise(times))
    running.say(f"{mode}: {rate:.1f} pods/s, median of {between * 1000:.1f} ms between two bindings")
    forget(api, PATH)
    until(lambda: not api.items(PATH), 60, "all pods are gone")
    return Measured(rate, 1000 * used / pods)


def _pod(mode: str, number: int) -> Json:
    """Of modes of one shape with 2 CPUs; of the others one of 24 shapes, every fourth without CPUs of its own."""
    if mode.startswith(("none", "echo", "ours")):
        return simple_pod(f"{mode}-{number}", 2)
    pod = simple_pod(f"{mode}-{number}", 2 * (1 + number % 3), f"{1 + number % 8}Gi")
    if number % 4 == 3:
        del pod["spec"]["containers"][0]["resources"]["limits"]
    return pod
