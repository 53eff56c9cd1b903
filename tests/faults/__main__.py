"""`python -m tests.faults`, `make faults`: the long drills, with their figures and a table at the end.

Each of the small ones in the suite is the same code with smaller numbers. A drill whose bounds do not hold says so in a
sentence, and the program ends with 1.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tests.faults import exporter_kills, half_open, outage, people, replayed_reports, rude_clients, takeover
from tests.faults.hostile_inputs import TARGETS, Tally, hail

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


def _one(play: Callable[[Path, int], Any]) -> Callable[[Path, int, int], Result]:
    def drill(directory: Path, seed: int, _count: int) -> Result:
        story = play(directory, seed)
        return Result([str(asdict(story))], story.broken)

    return drill


DRILLS: dict[str, Callable[[Path, int, int], Result]] = {
    "inputs": _inputs,
    "takeover": _takeovers,
    "outage": _one(lambda directory, _seed: outage.play(directory)),
    "exporter": _one(lambda directory, seed: exporter_kills.play(directory, seed=seed, kills=30)),
    "clients": _storms,
    "handshakes": _handshakes,
    "people": _people,
    "replays": _replays,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(DRILLS)))
@click.option("--seed", default=1, show_default=True)
@click.option("--inputs", default=1_000_000, show_default=True)
def main(names: tuple[str, ...], seed: int, inputs: int) -> None:
    """Run the drills named, or all. Ends with 1 if a bound of one of them does not hold."""
    console = Console(width=None if sys.stdout.isatty() else 110)
    table = Table("drill", "seconds", "outcome", title=f"fault drills, seed {seed}")
    chosen, failed = names or tuple(DRILLS), False
    for number, name in enumerate(chosen, 1):
        console.print(f"{name} ({number} of {len(chosen)}):", highlight=False)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="faults-") as directory:
            result = DRILLS[name](Path(directory), seed, inputs)
        for line in result.figures:
            console.print(f"  {line}", highlight=False, markup=False)
        outcome = "passed" if not result.broken else "failed:\n" + escape("\n".join(result.broken))
        table.add_row(name, f"{time.monotonic() - began:.0f}", outcome)
        failed = failed or bool(result.broken)
    console.print(table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
