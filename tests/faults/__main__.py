"""`python -m tests.faults`, `make faults`: the long drills, with their figures.

Each of the small ones in the suite is the same code with smaller numbers.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Final

import click

from tests.faults import exporter_kills, outage, people, rude_clients, takeover
from tests.faults.hostile_inputs import Tally, hail

MIB: Final = 1 << 20


def _inputs(_directory: Path, seed: int, count: int) -> Tally:
    began, tally = time.monotonic(), Tally()
    hail(count, seed, tally)
    rate = count / (time.monotonic() - began)
    print(f"  {tally.total} inputs, {rate:.0f}/s: {tally.taken.total()} taken, {tally.refused.total()} refused cleanly")
    print(f"  ended otherwise: {len(tally.broken)}; slowest {max(tally.slowest.values()) * 1000:.0f} ms")
    return tally


def _takeovers(directory: Path, seed: int, _count: int) -> list[takeover.Story]:
    stories = []
    for number in range(4):
        place = directory / str(number)
        place.mkdir()
        stories.append(takeover.play(place, seed=seed + number, kills=5, nodes=4, pods=60))
    return stories


def _storms(directory: Path, _seed: int, _count: int) -> None:
    for storm in rude_clients.play(directory):
        print(
            f"  {storm.name:46} {storm.clients:4} clients; {storm.calls:3} calls, {storm.unanswered} not answered, "
            f"median {storm.p50_ms:.0f} ms, p99 {storm.p99_ms:.0f} ms; "
            f"MiB {storm.before // MIB} before, {storm.peak // MIB} peak, {storm.after // MIB} after"
        )


def _people(directory: Path, _seed: int, _count: int) -> people.Story:
    story = people.play(directory, nodes=1000, states=300, seconds=30)
    print(f"  filter of known shapes: idle p50 {story.idle_p50_ms:.1f} ms, p99 {story.idle_p99_ms:.1f} ms", end="; ")
    print(f"under load p50 {story.load_p50_ms:.1f} ms, p99 {story.load_p99_ms:.1f} ms")
    for fault in story.broken:
        print(f"  BROKEN: {fault}")
    return story


DRILLS: Final[dict[str, Callable[[Path, int, int], object]]] = {
    "inputs": _inputs,
    "takeover": _takeovers,
    "outage": lambda directory, _seed, _count: outage.play(directory),
    "exporter": lambda directory, seed, _count: exporter_kills.play(directory, seed=seed, kills=30),
    "clients": _storms,
    "people": _people,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(DRILLS)))
@click.option("--seed", default=1, show_default=True)
@click.option("--inputs", default=1_000_000, show_default=True)
def main(names: tuple[str, ...], seed: int, inputs: int) -> None:
    """Run the drills named, or all."""
    failed = False
    for name in names or DRILLS:
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory(prefix="faults-") as directory:
            result = DRILLS[name](Path(directory), seed, inputs)
        for one in result if isinstance(result, list) else [result]:
            if is_dataclass(one) and not isinstance(one, type | Tally):
                print(f"  {asdict(one)}", flush=True)
            failed = failed or any(
                getattr(one, fault, None) for fault in ("wrong", "broken", "false_admits", "went_back")
            )
    sys.exit(failed)


if __name__ == "__main__":
    main()
