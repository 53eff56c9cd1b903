"""Defragment on small random clusters: a brute force over single moves gains nothing where its answer has none.

Copies are counted by plain replay: one after another on each node until one is not aligned. A move takes a pod that may
leave, and puts it, aligned, on any other node.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from random import Random

from extender.questions.defragment import Defragment
from extender.questions.evictions import Evictions
from extender.questions.node_context import Subject
from extender.questions.node_pods import pods_of
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of
from tests.subjects import judge
from tests.truth.evictions import BUDGETS, MAX_PRIORITY, World, cluster, holds, may_leave


def copies(world: World, workload: PodWorkload) -> int:
    """Aligned copies that fit in all."""
    count = 0
    for name in world.states:
        here: World | None = world
        while here is not None:
            here = here.place(name, workload, 100 + count, aligned=True)
            count += here is not None
    return count


def best_move(world: World, subjects: Sequence[Subject], workload: PodWorkload) -> tuple[int, str]:
    """The most copies after one move, and the move."""
    best = copies(world, workload), ""
    for subject in subjects:
        for pod in pods_of(subject):
            if not may_leave([pod]) or not holds(world, pod, subject.name):
                continue
            left = world.without(pod, subject.name)
            for name in world.states.keys() - {subject.name}:
                after = left.place(name, pod.workload, 50, aligned=True)
                if after is not None:
                    best = max(best, (copies(after, workload), f"{pod.name}: {subject.name} to {name}"))
    return best


def check(seed: int) -> tuple[int, list[str]]:
    """Cases: clusters where one move gains a copy."""
    rng = Random(seed)
    world, subjects = cluster(rng)
    workload = workload_from_json(pod_of(rng.choice((3, 4, 5)), "1Gi", name="wanted"))
    evictions = Evictions(subjects, BUDGETS, judge(), max_priority=MAX_PRIORITY, max_trials=20_000, workload=workload)
    points = [point for point in Defragment(workload, evictions, judge(), 4).run() if point is not None]
    before, (after, move) = copies(world, workload), best_move(world, subjects, workload)
    wrong = []
    moved = Counter(each.pod for point in points for each in point.evictions)
    if moved.total() > len(moved):
        wrong.append(f"a pod that has moved is no more: {moved.most_common(1)}")
    if points[0].copies != before:
        wrong.append(f"{points[0].copies} copies now, and {before} by plain replay")
    if after > before and len(points) == 1:
        wrong.append(f"no move, and {move} gains {after - before}")
    for point, following in itertools.pairwise(points):
        if following.copies <= point.copies:
            wrong.append(f"{following.moves} moves gain nothing")
    return int(after > before), wrong
