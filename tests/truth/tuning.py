"""Tune on small random clusters: equal for all seeds within the noise that it states.

The seeds draw other orders of arrival. So three things have to hold.

- The orders of another seed are in the range of each number, 19 of 20 times.
- The same configurations are on the front, up to the noise: instead of one that is left out, one is listed that
  guarantees no less, and that the ranges of other seeds do not tell to be worse.
- No configuration is listed beside one that is better by the ranges and no worse.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from extender.questions.node_context import Subject
from extender.questions.tune import Tune
from extender.questions.tune_changes import Change
from extender.questions.tune_front import Measures, Tuned
from extender.samples.machines import Hardware
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import subject_of

SMALL = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=4, threads=2, memory_gib=16, distances=(10, 21))
FEW_SEEDS, SEEDS = 4, 20
MAX_OUTSIDE = 1 / 8
"""Of the orders for one number, and of the seeds for two configurations. 1 of 20 is meant; the orders of one seed are
outside of a range together. If nothing has more after a few seeds, there are no more of them.
"""


@dataclass(frozen=True)
class Seen:
    """What one seed leads to: all configurations, which of them are listed, and the range of each measure."""

    found: dict[Change, Tuned]
    listed: frozenset[Change]
    ranges: dict[Change, dict[str, tuple[int, int]]]

    def is_better(self, one: Change, other: Change) -> bool:
        """Whether the ranges of *one* and *other* have nothing in common in some measure, and *one* is better there."""
        mine, others = self.ranges[one], self.ranges[other]
        return (
            mine["admitted"][0] > others["admitted"][1]
            or mine["aligned"][0] > others["aligned"][1]
            or mine["stranded_cpus"][1] < others["stranded_cpus"][0]
        )


def cluster(rng: Random) -> tuple[list[Subject], list[PodWorkload]]:
    """Up to four nodes of one configuration, and pods for 60 to 110 % of their CPUs."""
    policy = rng.choice(("none", "best-effort", "restricted", "single-numa-node"))
    count = rng.randint(2, 4)
    memory = rng.choice(("None", "Static"))
    nodes = [
        sample(f"n{i}", hardware=SMALL, topologyManagerPolicy=policy, memoryManagerPolicy=memory) for i in range(count)
    ]
    left, pods = int(14 * count * rng.uniform(0.6, 1.1)), list[PodWorkload]()
    while left > 0:
        size = rng.choice((1, 2, 3, 4, 5, 6, 7))
        pods.append(workload_from_json(pod_of(size, f"{rng.choice((1, 2, 3))}Gi", name=f"p{len(pods)}")))
        left -= size
    return [subject_of(node) for node in nodes], pods


def seen(subjects: list[Subject], pods: list[PodWorkload], seed: int) -> Seen:
    """The answer for one seed."""
    search = Tune(subjects, pods, seed, limit=24)
    (*_, found) = search.run()
    return Seen(
        found={each.change: each for each in found},
        listed=frozenset(each.change for each in found if each.is_best or not each.change),
        ranges={each.change: {name: search.spread(each, name) for name in Measures._fields} for each in found},
    )


def check(seed: int) -> tuple[int, list[str]]:
    """Numbers and configurations compared, for one cluster, and what is wrong."""
    subjects, pods = cluster(Random(seed))
    answers = list[Seen]()
    for seeds in (FEW_SEEDS, SEEDS):
        answers += [seen(subjects, pods, number) for number in range(len(answers) + 1, seeds + 1)]
        wrong = [*_outside(answers), *_missing(answers), *_surpassed(answers)]
        if not wrong:
            break
    return sum(len(each.found) * len(Measures._fields) for each in answers), wrong


def _outside(answers: Sequence[Seen]) -> Iterator[str]:
    """The numbers whose ranges do not hold for the orders of the next seed."""
    orders, outside = Counter[tuple[Change, str]](), Counter[tuple[Change, str]]()
    for one, other in zip(answers, [*answers[1:], answers[0]], strict=True):
        for change, ranges in one.ranges.items():
            for name, (least, most) in ranges.items():
                numbers = [getattr(trial.measures, name) for trial in other.found[change].trials]
                orders[change, name] += len(numbers)
                outside[change, name] += sum(not least <= number <= most for number in numbers)
    for (change, name), count in outside.items():
        if count > MAX_OUTSIDE * orders[change, name]:
            yield f"{name} of {dict(change)}: {count} of {orders[change, name]} orders of another seed are outside"


def _missing(answers: Sequence[Seen]) -> Iterator[str]:
    """The configurations that are left out, and what is listed is worse or guarantees less."""
    for number, answer in enumerate(answers, start=1):
        for change, tuned in answer.found.items():
            is_left_out = change not in answer.listed
            if is_left_out and not any(
                sum(each.is_better(change, other) for each in answers) <= MAX_OUTSIDE * len(answers)
                and not answer.found[other].is_weaker(tuned)
                for other in answer.listed
            ):
                yield f"seed {number}: nothing is listed that is as good as {dict(change)}"


def _surpassed(answers: Sequence[Seen]) -> Iterator[str]:
    """The configurations that are listed beside a better one."""
    for number, answer in enumerate(answers, start=1):
        for change in answer.listed - {()}:
            for other in answer.listed - {change}:
                one, two = answer.found[change], answer.found[other]
                is_no_worse = all(a >= b for a, b in zip(two.rank, one.rank, strict=True))
                if is_no_worse and answer.is_better(other, change) and not two.is_weaker(one):
                    yield f"seed {number}: {dict(change)} is listed beside {dict(other)}"
