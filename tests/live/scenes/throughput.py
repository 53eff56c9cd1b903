"""Pods a second: without an extender, beside one that only answers, and with ours, in one run.

Left out: exporters and files of kubelets, pods that end, and nodes of several shapes.
"""

import itertools
import statistics
from dataclasses import dataclass, replace

from tests.live.api import AsyncApi
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
"""Processor time a pod may be so many times that of the echo, most of whose time goes to its HTTP client."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One mode. `cpu_ms`: processor time of the extender for each pod."""

    rate: float
    cpu_ms: float


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """The last of the pods is awaited. This process makes the reports of fake nodes, for ours and for the echo."""
    findings = Findings("throughput")
    pods = plan.pods or PODS
    findings.show("pods, rounds", f"{pods}, {plan.rounds or ROUNDS}")
    for count in [plan.nodes] if plan.nodes else SIZES:
        found: dict[str, list[Measured]] = {mode: [] for mode in ("none", "echo", "ours")}
        with cluster(binaries, replace(plan, nodes=0), say, nodes=0) as running:
            loop = running.nodes.loop
            fakes = FakeNodes(AsyncApi(running.plane.url, running.plane.admin_context), count)
            try:
                loop.run(fakes.register(), 600)
                say(f"{count} Node objects are there")
                for number in range(plan.rounds or ROUNDS):
                    found["none"].append(_measure(running, fakes, f"none-{number}", pods, None, None))
                    found["echo"].append(_with_echo(running, fakes, f"echo-{number}", pods))
                    ours = running.extender
                    found["ours"].append(_measure(running, fakes, f"ours-{number}", pods, ours.url, ours))
                binds, audit = running.extender.binds(), audit_of(running.extender, say)
            finally:
                loop.run(fakes.close())
        rates = {mode: statistics.median(each.rate for each in measured) for mode, measured in found.items()}
        cpu = {mode: statistics.median(each.cpu_ms for each in measured) for mode, measured in found.items()}
        share = rates["ours"] / rates["echo"]
        most = CPU_OF_ECHO * cpu["echo"]
        shown = f"{cpu['echo']:.1f}, {cpu['ours']:.1f}"
        what = f"{count} nodes: ms of CPU a pod, echo, ours"
        findings.must(what, shown, f"ours at most {most:.1f}", ok=cpu["ours"] <= most)
        shown = ", ".join(f"{rate:.0f}" for rate in rates.values())
        what = f"{count} nodes: pods/s without, echo, ours (medians); ours, of the echo's"
        findings.must(what, f"{shown}; {share:.0%}", "at least 90%", ok=share >= 0.9)
        bound = pods * (plan.rounds or ROUNDS)
        findings.must(
            f"{count} nodes: bind calls of ours", counted(binds), f"{bound} bound", ok=binds["bound"] == bound
        )
        show_audit(findings, audit, bound)
        findings.must(f"{count} nodes: refused after binding", len(fakes.refused), "0", ok=not fakes.refused)
        findings.details += fakes.refused[:5]
    return findings


def _with_echo(running: Cluster, fakes: FakeNodes, mode: str, pods: int) -> Measured:
    with running.extender.echo() as echo:
        return _measure(running, fakes, mode, pods, echo.url, echo)


def _measure(
    running: Cluster, fakes: FakeNodes, mode: str, pods: int, extender_url: str | None, program: Program | None
) -> Measured:
    """All pods are there before the scheduler starts; from the first binding to the last."""
    api, loop = running.plane.api, running.nodes.loop
    loop.run(fakes.begin(extender_url), 600)
    if program is running.extender:
        running.extender.wait_for_nodes(len(fakes.names))
    for number in range(pods):
        create(api, simple_pod(f"{mode}-{number}", 2))
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
