"""All attacks at once, for as long as is asked, beside honest traffic: figures every half minute, and a file of them.

Each attack strikes from a thread of its own, again and again. The attacker's oldest pods are deleted, so that what is
measured is what the extender keeps.
"""

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import orjson

from tests.faults.attack_drill import Attack, Bounds, World, measured, truth
from tests.faults.people import family_of, memory_mib

STRIKE_SECONDS: Final = 20.0
"""Between two strikes of one attack."""
LINE_SECONDS: Final = 30.0
SAMPLE_SECONDS: Final = 10.0
KEPT_PODS: Final = 300
LEVEL_MIB: Final = 20.0
"""What memory may grow by in the second half, by the line through its samples."""


@dataclass
class Soak:
    """What was seen. `rss_mib`: seconds and memory of all processes. The other lists have one entry a line."""

    seconds: float
    idle_p99_ms: float = 0.0
    before_mib: float = 0.0
    rss_mib: list[tuple[float, float]] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    alive_seconds: list[float] = field(default_factory=list)
    stolen: list[float] = field(default_factory=list)
    own_seconds: list[float] = field(default_factory=list)
    calls: int = 0
    unanswered: int = 0
    refused: int = 0
    placed: int = 0
    strikes: dict[str, int] = field(default_factory=dict)
    waiting: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def growth_mib(self) -> float:
        """By how much memory grew in the second half, by the straight line that fits best."""
        half = [sample for sample in self.rss_mib if sample[0] >= self.rss_mib[-1][0] / 2]
        if len(half) < 2:
            return 0.0
        return statistics.linear_regression(*zip(*half, strict=True)).slope * (half[-1][0] - half[0][0])

    @property
    def quiet(self) -> list[int]:
        """The windows in which others left the CPUs to the extender. Times of the others say nothing of it."""
        return [at for at, stolen in enumerate(self.stolen) if stolen < self.bounds.stolen]

    def _median(self, values: Sequence[float]) -> float:
        """Of the quiet windows."""
        return statistics.median([values[at] for at in self.quiet] or [0.0])

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the soak passed."""
        bounds = self.bounds
        most = max(bounds.p99_floor_ms, bounds.p99_ratio * self.idle_p99_ms)
        p99, alive = self._median(self.p99_ms), self._median(self.alive_seconds)
        grown = statistics.median(mib for _, mib in self.rss_mib[-6:] or [(0.0, 0.0)]) - self.before_mib
        faults = (
            (not self.calls or not self.rss_mib, "nothing was measured"),
            (not self.quiet, "others took the CPUs all the time: no times were measured"),
            (self.unanswered, f"{self.unanswered} honest calls were not answered, or with an error"),
            (
                self.refused > self.calls / 50,
                f"{self.refused} of {self.calls} honest calls were offered no honest node",
            ),
            (p99 > most, f"honest filter p99 was {p99:.0f} ms (median of quiet windows), more than {most:.0f}"),
            (alive > bounds.alive_seconds, f"/livez took {alive:.2f} s (median of quiet windows)"),
            (grown > bounds.rss_mib, f"memory grew by {grown:.0f} MiB"),
            (self.growth_mib > LEVEL_MIB, f"memory still grew by {self.growth_mib:.0f} MiB in the second half"),
            (self.waiting, f"{len(self.waiting)} honest pods were not placed"),
        )
        silent = [f"{name} never struck" for name, count in self.strikes.items() if not count]
        return [*(text for is_so, text in faults if is_so), *silent, *self.wrong]


def play(
    directory: Path, attacks: Sequence[Attack], *, seconds: float, said: Callable[[str], None], result: Path | None
) -> Soak:
    """One soak. *said* gets a line every half minute, and *result* what has been seen so far."""
    soak = Soak(seconds, strikes={attack.name: 0 for attack in attacks})
    world = World(directory, {})
    with world.running():
        for attack in attacks:
            attack.prepare(world)
        measured(world, lambda: None, 5.0)
        soak.idle_p99_ms = _idle_p99_ms(world)
        soak.before_mib = memory_mib(family_of(world.extender.pid))
        said(f"idle: p99 {soak.idle_p99_ms:.0f} ms, {soak.before_mib:.0f} MiB")
        stop = threading.Event()
        threads = [
            threading.Thread(target=_strike, args=(world, attack, soak, stop, number), daemon=True)
            for number, attack in enumerate(attacks)
        ]
        threads.append(threading.Thread(target=_sample, args=(world, soak, stop), daemon=True))
        for thread in threads:
            thread.start()
        began = time.monotonic()
        while (now := time.monotonic() - began) < seconds:
            _look(world, soak, min(LINE_SECONDS, max(1.0, seconds - now)))
            said(_line(soak, time.monotonic() - began))
            _write(result, soak)
        stop.set()
        for thread in threads:
            thread.join(60)
        soak.waiting = world.honest.settle()
        soak.idle_p99_ms = min(soak.idle_p99_ms, _idle_p99_ms(world))  # the machine may have been busy at first
        soak.wrong += [f"at the end: {why}" for why in (truth(world),) if why]
        soak.wrong += [f"{attack.name}: {why}" for attack in attacks for why in attack.check(world)]
    _write(result, soak)
    return soak


def _idle_p99_ms(world: World) -> float:
    return max(measured(world, lambda: None, 5.0)[0].p99_ms for _ in range(3))


def _strike(world: World, attack: Attack, soak: Soak, stop: threading.Event, number: int) -> None:
    stop.wait(number * STRIKE_SECONDS / len(soak.strikes))
    while not stop.is_set():
        began = time.monotonic()
        attack.strike(world, soak.strikes[attack.name])
        soak.strikes[attack.name] += 1
        stop.wait(max(1.0, began + STRIKE_SECONDS - time.monotonic()))


def _sample(world: World, soak: Soak, stop: threading.Event) -> None:
    began = time.monotonic()
    while not stop.is_set():
        soak.rss_mib.append((time.monotonic() - began, memory_mib(family_of(world.extender.pid))))
        world.trim(KEPT_PODS)
        stop.wait(SAMPLE_SECONDS)


def _look(world: World, soak: Soak, seconds: float) -> None:
    window, _ = measured(world, lambda: None, seconds)
    own, world.own_seconds = world.own_seconds, []
    soak.p99_ms.append(window.p99_ms)
    soak.alive_seconds.append(window.alive_worst_seconds)
    soak.stolen.append(window.stolen)
    soak.own_seconds.append(max(own, default=0.0))
    soak.calls += len(window.milliseconds)
    soak.unanswered += window.unanswered
    soak.refused += window.refused
    soak.placed += window.placed
    soak.waiting = window.waiting


def _line(soak: Soak, now: float) -> str:
    return (
        f"{now:5.0f} s of {soak.seconds:.0f}: p99 {soak.p99_ms[-1]:5.0f} ms; /livez {soak.alive_seconds[-1]:.2f} s; "
        f"CPU taken by others {soak.stolen[-1]:.0%}; {soak.rss_mib[-1][1]:.0f} MiB; own calls "
        f"{soak.own_seconds[-1]:.1f} s; {soak.placed} placed, {len(soak.waiting)} waiting; {soak.refused} of "
        f"{soak.calls} calls without a node, {soak.unanswered} without an answer; {sum(soak.strikes.values())} strikes"
    )


def _write(result: Path | None, soak: Soak) -> None:
    if result is not None:
        result.write_bytes(orjson.dumps({**asdict(soak), "broken": soak.broken}, option=orjson.OPT_INDENT_2))
