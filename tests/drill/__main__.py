"""`python -m tests.drill`, `make drill`."""

import asyncio
import gc
import logging
import sys
import time
from collections import Counter
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.drill.advising import AdviceOutcome, AdvicePlan, Advising
from tests.drill.drill import Drill, Outcome, Plan
from tests.drill.groups import quantile
from tests.drill.preempting import Preempting, PreemptionPlan


@click.command()
@click.option("--pods", default=100_000, show_default=True)
@click.option("--nodes", default=500, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The same seed plays the same story.")
@click.option("--restarts/--no-restarts", default=True, show_default=True, help="Of every part.")
@click.option("--life", default=30.0, show_default=True, help="Mean life of a pod, virtual seconds.")
@click.option("--load", default=1.0, show_default=True, help="How full to keep the cluster; above 1 pods queue up.")
@click.option("--restart-seconds", default=500.0, show_default=True, help="Between two restarts on one node, virtual.")
@click.option("--nri", default=0, show_default=True, help="Every how manieth node runs the NRI policy; 0: none.")
@click.option("--only", type=click.Choice(["gate", "no-gate"]), help="One of the two only.")
@click.option("--scene", type=click.Choice(["load", "preemption", "advice"]), default="load", show_default=True)
@click.option("--demands", is_flag=True, help="Pods demand alignment, on nodes that refuse no pod for it.")
@click.option(
    "--rounds", default=100, show_default=True, help="Preemptors of `preemption`, clusters of `advice`; 7 nodes."
)
@click.option("--churn-seconds", default=0.0, help="Mean time until a node leaves and another comes; 0: all stay.")
@click.option("--groups", default=0.0, help="The share of arrivals that are groups of 2 to 6 pods.")
@click.option("--gangs/--no-gangs", default=True, help="Whether the extender places groups together.")
def main(
    *, pods: int, nodes: int, seed: int, restarts: bool, life: float, load: float, only: str | None, **scene: Any
) -> None:
    """Play a cluster with the bind gate, and without; or rounds of preemption; or advice that is carried out."""
    logging.basicConfig(level=logging.CRITICAL)
    gc.set_threshold(100_000, 20, 100)
    console = Console(width=None if sys.stdout.isatty() else 110)
    if scene["scene"] == "preemption":
        sys.exit(not _preempting(scene["rounds"], seed, console))
    if scene["scene"] == "advice":
        sys.exit(not _advising(range(seed, seed + scene["rounds"]), console))
    console.print(f"seed {seed}: {pods} pods, {nodes} nodes", highlight=False)
    failed = False
    for gate in (True, False):
        if only not in (None, "gate" if gate else "no-gate"):
            continue
        plan = Plan(
            pods=pods,
            nodes=nodes,
            seed=seed,
            gate=gate,
            restarts=restarts,
            restart_seconds=scene["restart_seconds"],
            mean_life=life,
            load=load,
            demands=scene["demands"],
            nri=scene["nri"],
            groups=scene["groups"],
            gangs=scene["gangs"],
            churn_seconds=scene["churn_seconds"],
        )
        started = time.perf_counter()
        outcome = _play(plan, console)
        console.print(_table(plan, outcome, time.perf_counter() - started))
        for line in (*outcome.refusals[:5], *outcome.create_errors[:5]):
            console.print(f"  {line}", highlight=False, markup=False)
        for line in outcome.broken:
            console.print(f"  {line}", highlight=False, markup=False)
        failed = failed or bool(outcome.broken)
    sys.exit(failed)


def _preempting(rounds: int, seed: int, console: Console) -> bool:
    """Play the rounds with the default finish doubt and without; whether nobody died for nothing."""
    table = Table(title=f"{rounds} rounds of preemption, seed {seed}")
    for column in ("finish doubt", "placed", "preempted", "victims", "for nothing", "refused", "longest wait"):
        table.add_column(column)
    good = True
    for finish_seconds in (3.0, 0.0):
        plan = PreemptionPlan(rounds=rounds, seed=seed, finish_seconds=finish_seconds)
        outcome = asyncio.run(Preempting(plan).run())
        figures = (outcome.placed, outcome.preempted, outcome.victims, len(outcome.for_nothing), len(outcome.refusals))
        table.add_row(f"{finish_seconds:g} s", *map(str, figures), f"{outcome.waits[-1]:g} s")
        for line in (*outcome.for_nothing[:5], *outcome.refusals[:5]):
            console.print(f"  {line}", highlight=False)
        good = good and not outcome.for_nothing and not outcome.refusals
    console.print(table)
    return good


def _advising(seeds: range, console: Console) -> bool:
    """Carry out advice in one cluster after the other; whether every promise was kept."""
    outcome = AdviceOutcome()
    for seed in seeds:
        outcome.add(asyncio.run(Advising(AdvicePlan(seed=seed)).run()))
        console.print(f"  seed {seed}: {len(outcome.faults)} promises not kept so far", highlight=False)
    table = Table(title=f"advice carried out, seeds {seeds[0]} to {seeds[-1]}", show_header=False)
    for what, count in sorted(outcome.done.items()):
        table.add_row(what, str(count))
    table.add_row("promises not kept", str(len(outcome.faults)))
    table.add_row("tuned configurations outside their range", str(len(outcome.outside)))
    console.print(table)
    for line in outcome.broken:
        console.print(f"  {line}", highlight=False, markup=False)
    return not outcome.broken


def _play(plan: Plan, console: Console) -> Outcome:
    if not console.is_terminal:
        return asyncio.run(Drill(plan).run(_Lines(plan.pods, console)))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("gate" if plan.gate else "no gate", total=plan.pods)
        return asyncio.run(Drill(plan).run(lambda done: progress.update(task, completed=done)))


class _Lines:
    """Progress where no bar can be drawn: a line for each twentieth."""

    def __init__(self, total: int, console: Console) -> None:
        self._step, self._total, self._console = max(1, total // 20), total, console
        self._next, self._started = self._step, time.perf_counter()

    def __call__(self, done: int) -> None:
        if done >= self._next:
            self._next += self._step
            elapsed = time.perf_counter() - self._started
            self._console.print(f"  {done} of {self._total} pods, {elapsed:.0f} s", highlight=False)


def _by_reason(refused: Counter[str]) -> str:
    return f"{refused.total()} {dict(refused) or ''}"


def _quantiles(values: list[float]) -> str:
    return ", ".join(
        f"{name} {quantile(values, part):.1f}" for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    )


def _table(plan: Plan, outcome: Outcome, seconds: float) -> Table:
    table = Table(title=f"{'with' if plan.gate else 'without'} the bind gate, seed {plan.seed}", show_header=False)
    rows = {
        "pods admitted by kubelets": str(outcome.admitted),
        "refused after bind": _by_reason(outcome.refused),
        "of them because of what was not known at bind": str(outcome.unforeseen),
        "pods that demand alignment": f"{outcome.demanding}, {len(outcome.against_demand)} placed otherwise, "
        f"{outcome.unforeseen_demand} because of a restart that was not known",
        "running pods refused by restarted kubelets": _by_reason(outcome.refused_again),
        "pods in CreateContainerError after bind": str(len(outcome.create_errors)),
        "nodes with leaked or double-counted room after settling": str(len(outcome.leaks)),
        "pods still in flight after settling": str(outcome.in_flight),
        "pods that fit nowhere and were taken back": str(outcome.given_up),
        "restarts": ", ".join(f"{part} {n}" for part, n in sorted(outcome.restarts.items())),
        "times that the API server was away": str(outcome.outages),
        "reports lost": str(outcome.lost_reports),
        "placed elsewhere than predicted, for no known reason": str(outcome.unexplained),
        "audit": ", ".join(f"{name} {count}" for name, count in sorted(outcome.audit.items())),
        "attempts that led to no binding": ", ".join(f"{w} {n}" for w, n in outcome.scheduling.most_common(8)),
        "nodes": ", ".join(f"{what} {n}" for what, n in sorted(outcome.fleet.items())),
        "pods bound before the first report of their node": f"{outcome.assumed}, {outcome.refused_assumed} refused",
        "pods that went with their node before it decided": str(outcome.vanished_pods),
        "groups of pods": f"{outcome.groups}, {outcome.placed_groups} placed, {len(outcome.half_placed)} half placed",
        "seconds from the first to the last binding of a group": _quantiles(outcome.gaps),
        "seconds until a single pod was bound": _quantiles(outcome.waits),
        "virtual, real seconds": f"{outcome.virtual_seconds - 1000:.0f}, {seconds:.1f}",
    }
    for what, value in rows.items():
        table.add_row(what, value)
    return table


if __name__ == "__main__":
    main()
