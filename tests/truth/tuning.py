"""Tune on small random clusters: equal for all seeds within the noise that it states.

The seeds draw other orders of arrival. So the numbers of a configuration under one seed have to be in the range that it
states under another one, 19 of 20 times; and the same configurations have to be on the front, except for those whose
ranges do not tell them apart from one that surpasses them.
"""

from dataclasses import dataclass
from random import Random

from extender.questions.subjects import Subject
from extender.questions.tune import Tune
from extender.questions.tune_front import Change, Measures, Tuned
from extender.samples.machines import Hardware
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import subject_of

SMALL = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=4, threads=2, memory_gib=16, distances=(10, 21))
SEEDS = 4


@dataclass(frozen=True)
class Seen:
    """What one seed leads to: the configurations that are listed, and the range of each measure of all of them."""

    listed: frozenset[Change]
    means: dict[Change, Measures]
    ranges: dict[Change, dict[str, tuple[int, int]]]


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
    listed = [each for each in found if each.is_best or not each.change]
    return Seen(
        listed=frozenset(each.change for each in listed),
        means={each.change: _mean(each) for each in found},
        ranges={each.change: {name: search.spread(each, name) for name in Measures._fields} for each in found},
    )


def _mean(each: Tuned) -> Measures:
    admitted, aligned, stranded = each.rank
    return Measures(round(admitted), round(aligned), round(-stranded))


def check(seed: int) -> tuple[int, list[str]]:
    """Numbers and configurations compared between seeds, for one cluster."""
    subjects, pods = cluster(Random(seed))
    answers = [seen(subjects, pods, number) for number in range(1, SEEDS + 1)]
    compared, outside, wrong = 0, 0, []
    first, *others = answers
    for other in others:
        for change in first.listed & other.listed:
            for name in Measures._fields:
                least, most = first.ranges[change][name]
                compared += 1
                outside += not least <= getattr(other.means[change], name) <= most
        for change in first.listed ^ other.listed:
            compared += 1
            two = other if change in first.listed else first
            outside += not any(_alike(two, change, better) for better in two.listed)
    if outside > max(2, compared // 10):
        wrong.append(f"{outside} of {compared} numbers and configurations are outside the range of another seed")
    return compared, wrong


def _alike(seen_: Seen, one: Change, other: Change) -> bool:
    """Whether the ranges of two configurations overlap in every measure."""
    return all(
        seen_.ranges[one][name][0] <= seen_.ranges[other][name][1]
        and seen_.ranges[other][name][0] <= seen_.ranges[one][name][1]
        for name in Measures._fields
    )
