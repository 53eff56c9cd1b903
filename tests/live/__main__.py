"""`python -m tests.live`, `make live`."""

import logging
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from tests.live import binaries
from tests.live.cluster import REAL, RESTATED, Plan
from tests.live.installing import APPLY, INSTALLERS
from tests.live.mutants import CHANGES
from tests.live.processes import SceneError
from tests.live.report import Findings, table
from tests.live.scenes import ONLY_REAL, SCENES, WITH_REAL_KUBELETS
from tests.live.whole import machine_trees, namespace

SKIPPED = (
    "live scenes skipped: {}. Get etcd, kube-apiserver and kube-scheduler (tests/live/README.md says how), and name "
    "their directory in KUBEBUILDER_ASSETS."
)

ENDINGS = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option("--scene", "names", multiple=True, type=click.Choice(list(SCENES)), help="Several may be given.  [all]")
@click.option("--seed", default=1, show_default=True)
@click.option("--nodes", type=click.IntRange(1, 5000), help="Instead of the scene's own number.")
@click.option("--pods", type=click.IntRange(1), help="Instead of the scene's own number.")
@click.option("--rounds", type=click.IntRange(1), help="Instead of the scene's own number.")
@click.option(
    "--seconds", type=click.FloatRange(1), help="Mean life of a pod, or length of the quiet; the scene's own."
)
@click.option("--mutant", type=click.Choice(list(CHANGES)), help="A changed extender: a bound must break.")
@click.option(
    "--kubelets", type=click.Choice((RESTATED, REAL)), default=RESTATED, show_default=True,
    help="Real: kubelets' own programs on recorded machines.",
)  # fmt: skip
@click.option(
    "--kubelet", "programs_of_nodes", multiple=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With real kubelets: their program, for instance of another minor. Of several, nodes have one in turn.",
)  # fmt: skip
@click.option(
    "--installer", type=click.Choice(INSTALLERS), default=APPLY, show_default=True,
    help="Install with kubectl or helm, as docs/install.md says, or object by object.",
)  # fmt: skip
@click.option("--recorded", is_flag=True, help="Restated kubelets on the machines that real ones have.")
@click.option("--keep-logs", type=click.Path(path_type=Path), help="Copy all logs there at the end.")
def main(
    names: tuple[str, ...],
    keep_logs: Path | None,
    mutant: str | None,
    kubelets: str,
    programs_of_nodes: tuple[Path, ...],
    *,
    recorded: bool,
    installer: str,
    **sizes: float | None,
) -> None:
    """Play scenes on real parts; exit code 1 if a bound is broken, 0 if all hold or the programs are not here."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    for ending in ENDINGS:
        signal.signal(ending, _interrupt)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        programs = binaries.find(kubelet=kubelets == REAL, kubelets=programs_of_nodes)
    except binaries.MissingError as error:
        console.print(SKIPPED.format(error), highlight=False)
        return
    lacking = _lacking(kubelets, recorded=recorded)
    if lacking:
        console.print(f"live scenes skipped: {lacking}", highlight=False)
        return
    sizes_and_ways: dict[str, Any] = {**sizes, "kubelets": kubelets, "recorded": recorded, "installer": installer}
    plan = Plan(keep_logs=keep_logs, mutant=mutant or "", **sizes_and_ways)
    found: list[Findings] = []
    for name in names or (
        WITH_REAL_KUBELETS if kubelets == REAL else (each for each in SCENES if each not in ONLY_REAL)
    ):
        started = time.monotonic()

        def say(text: str, name: str = name, started: float = started) -> None:
            console.print(f"  {name} {time.monotonic() - started:6.1f} s  {text}", highlight=False)

        try:
            findings = SCENES[name](programs, plan, say)
        except SceneError as error:
            findings = Findings(name)
            findings.must("the scene", "could not be played to its end", "played", ok=False)
            findings.details.append(str(error))
        except KeyboardInterrupt:
            console.print("interrupted: everything that was started has been ended")
            sys.exit(130)
        findings.seconds = time.monotonic() - started
        found.append(findings)
        console.print(table(findings))
        for line in findings.details[:10]:
            console.print(f"  {line}", highlight=False, markup=False)
    sys.exit(not all(findings.ok for findings in found))


def _lacking(kubelets: str, *, recorded: bool) -> str:
    """What real kubelets or recorded machines need and is not here; empty: nothing."""
    lacking = [machine_trees.missing()] if recorded or kubelets == REAL else []
    if kubelets == REAL:
        lacking.append(namespace.cannot())
    return "; ".join(filter(None, lacking))


def _interrupt(*_: object) -> None:
    """End the scene; a second signal does not disturb the cleaning up."""
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
