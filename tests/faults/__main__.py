"""`python -m tests.faults`, `make faults`: the long drills, with their figures and a table at the end.

Each of the small ones in the suite is the same code with smaller numbers. A drill whose bounds do not hold says so in a
sentence, and the program ends with 1.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.faults import (
    attack_drill,
    exporter_kills,
    half_open,
    outage,
    people,
    replayed_reports,
    rude_clients,
    soak,
    takeover,
)
from tests.faults.attacks import ATTACKS
from tests.faults.author import Author, WildNode
from tests.faults.hostile_inputs import TARGETS, Tally, hail
from tests.faults.mutants import OF_ATTACK

MIB: Final = 1 << 20
SLOWEST_INPUT_SECONDS: Final = 10.0


@dataclass
class Result:
    """What one drill measured, in lines for people, and which of its bounds do not hold, in sentences."""

    figures: list[str]
    broken: list[str]


def broken_inputs(tally: Tally, count: int) -> list[str]:
    """The bounds that do not hold for *count* hostile inputs; empty: the drill passed."""
    found = tally.broken[:20]
    found += [
        f"an input for {name} took {seconds:.1f} s"
        for name, seconds in tally.slowest.items()
        if seconds > SLOWEST_INPUT_SECONDS
    ]
    found += [f"of the inputs for {name} none was taken" for name in TARGETS if not tally.taken[name]]
    return found if tally.total == count else [*found, f"{tally.total} of {count} inputs were tried"]


def _inputs(_directory: Path, seed: int, count: int) -> Result:
    began, tally = time.monotonic(), Tally()
    hail(count, seed, tally)
    rate = count / (time.monotonic() - began)
    return Result(
        [
            f"{tally.total} inputs, {rate:.0f}/s: {tally.taken.total()} taken, {tally.refused.total()} refused cleanly",
            f"ended otherwise: {len(tally.broken)}; slowest {max(tally.slowest.values(), default=0) * 1000:.0f} ms",
        ],
        broken_inputs(tally, count),
    )


def _replays(directory: Path, seed: int, _count: int) -> Result:
    story = replayed_reports.play(directory, seed=seed, rounds=300)
    figures = {name: value for name, value in asdict(story).items() if name != "wrong"}
    return Result([str(figures)], story.wrong[:20])


def _takeovers(directory: Path, seed: int, _count: int) -> Result:
    result = Result([], [])
    for number in range(4):
        place = directory / str(number)
        place.mkdir()
        story = takeover.play(place, seed=seed + number, kills=5, nodes=4, pods=60)
        result.figures.append(str(asdict(story)))
        result.broken += story.broken
    return result


def _storms(directory: Path, _seed: int, _count: int) -> Result:
    storms = rude_clients.play(directory)
    figures = [
        f"{storm.name:46} {storm.clients:4} clients; {storm.calls:3} calls, {storm.unanswered} not answered, "
        f"median {storm.p50_ms:.0f} ms, p99 {storm.p99_ms:.0f} ms; "
        f"MiB {storm.before // MIB} before, {storm.peak // MIB} peak, {storm.after // MIB} after"
        for storm in storms
    ]
    return Result(figures, rude_clients.broken(storms))


def _handshakes(directory: Path, seed: int, _count: int) -> Result:
    story = half_open.play(directory, seed=seed, floor_ms=half_open.FLOOR_MS, said=lambda line: click.echo(f"  {line}"))
    figures = [f"before: {story.before // MIB} MiB; idle: {_calls(story.idle)}"]
    figures += [f"{one.opened} opened: {one.after // MIB} MiB after; {_calls(one.calls)}" for one in story.storms]
    figures += [f"p99 of all {kind} calls: {story.p99_ms(kind):.0f} ms" for kind in story.idle]
    return Result(figures, story.broken)


def _calls(calls: dict[str, half_open.Calls]) -> str:
    return "; ".join(
        f"{kind}: {len(each.milliseconds)} calls, {each.unanswered} not answered, p99 {each.p99_ms:.0f} ms"
        for kind, each in calls.items()
    )


def _people(directory: Path, _seed: int, _count: int) -> Result:
    story = people.play(directory, nodes=1000, states=300, seconds=30)
    return Result([str(asdict(story))], story.broken)


def _chosen(only: str, seed: int) -> list[attack_drill.Attack]:
    """The attacks whose names begin so."""
    every = [*(kind() for kind in ATTACKS), Author(seed), WildNode(seed)]
    return [attack for attack in every if attack.name.startswith(tuple(only.split(",")))]


def _attacks(directory: Path, seed: int, _count: int, only: str = "") -> Result:
    result = Result([], [])
    for number, attack in enumerate(_chosen(only, seed)):
        place = directory / str(number)
        place.mkdir()
        seen = attack_drill.play(place, attack)
        click.echo(f"  {seen.line}{'' if seen.broken else '  passed'}")
        for fault in seen.broken:
            click.echo(f"      {fault}")
        result.broken += [f"{attack.name}: {fault}" for fault in seen.broken]
    return result


def _mutants(directory: Path, seed: int, _count: int, only: str = "") -> Result:
    """Each attack on an extender that lacks the property which bounds it: the drill must see it."""
    result = Result([], [])
    for number, attack in enumerate(_chosen(only, seed)):
        if attack.name in OF_ATTACK:
            place, mutant = directory / str(number), OF_ATTACK[attack.name].__name__
            place.mkdir()
            seen = attack_drill.play(place, attack, mutant=mutant)
            click.echo(f"  {attack.name:22} {mutant:38} {seen.broken[0] if seen.broken else 'not seen'}")
            result.broken += [] if seen.broken else [f"{attack.name}: an extender in which {mutant} passes"]
    return result


def _soak(seconds: float, only: str, seed: int, result: Path) -> bool:
    """Whether a bound of the soak does not hold."""
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        story = soak.play(Path(directory), _chosen(only, seed), seconds=seconds, said=click.echo, result=result)
    click.echo(f"memory {story.before_mib:.0f} MiB before; growth in the second half {story.growth_mib:+.1f} MiB")
    click.echo("\n".join(["failed:", *story.broken]) if story.broken else "passed")
    return bool(story.broken)


def _one(play: Callable[[Path, int], Any]) -> Callable[[Path, int, int], Result]:
    def drill(directory: Path, seed: int, _count: int) -> Result:
        story = play(directory, seed)
        return Result([str(asdict(story))], story.broken)

    return drill


Drill = Callable[[Path, int, int], Result]
DRILLS: dict[str, Drill] = {
    "inputs": _inputs,
    "takeover": _takeovers,
    "outage": _one(lambda directory, _seed: outage.play(directory)),
    "exporter": _one(lambda directory, seed: exporter_kills.play(directory, seed=seed, kills=30)),
    "clients": _storms,
    "handshakes": _handshakes,
    "people": _people,
    "replays": _replays,
    "attacks": _attacks,
    "mutants": _mutants,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(DRILLS)))
@click.option("--seed", default=1, show_default=True)
@click.option("--inputs", default=1_000_000, show_default=True)
@click.option("--attack", default="", help="Of the attacks only those whose names begin so, such as B4,S1.")
@click.option(
    "--soak", "soak_seconds", default=0.0, help="Instead of the drills: all attacks at once, so many seconds."
)
@click.option("--result", type=click.Path(path_type=Path), default=Path("soak.json"), help="Where the soak writes.")
def main(names: tuple[str, ...], seed: int, inputs: int, attack: str, soak_seconds: float, result: Path) -> None:
    """Run the drills named, or all. Ends with 1 if a bound of one of them does not hold."""
    if soak_seconds:
        sys.exit(_soak(soak_seconds, attack, seed, result))
    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table("drill", "seconds", "outcome", title=f"fault drills, seed {seed}")
    drills: dict[str, Drill] = {
        **DRILLS,
        "attacks": partial(_attacks, only=attack),
        "mutants": partial(_mutants, only=attack),
    }
    chosen, failed = names or (("attacks",) if attack else tuple(DRILLS)), False
    for number, name in enumerate(chosen, 1):
        console.print(f"{name} ({number} of {len(chosen)}):", highlight=False)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="faults-") as directory:
            found = drills[name](Path(directory), seed, inputs)
        for line in found.figures:
            console.print(f"  {line}", highlight=False, markup=False)
        outcome = "passed" if not found.broken else "failed:\n" + escape("\n".join(found.broken))
        table.add_row(name, f"{time.monotonic() - began:.0f}", outcome)
        failed = failed or bool(found.broken)
    console.print(table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
