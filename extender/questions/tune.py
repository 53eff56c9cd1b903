"""Tune: the pods of the cluster, or a list of pods, replayed under other kubelet configurations.

Rules of this file
- Every node keeps its machine, its devices and the size of its reservation. A change applies to every node; where a
  kubelet does not start with it, none of the node's pods is admitted.
- Pods arrive in random orders, drawn from a seed, and of the kubelet's random picks of devices one is drawn as well.
  Without a list every node gets its own pods; the pods of a list are dealt to the nodes in turn. No scheduler chooses
  here. A pod is refused by the managers or by the node's totals.
- Every configuration is replayed in the same orders, and the same configurations are tried for every seed: those that
  change one field, then two, and so on.
- The work is bounded: of a large cluster, only as many nodes are replayed as `MAX_REPLAYS` allows, the same for every
  seed. If the time is over, the answer has what was replayed until then.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import combinations, product
from math import ceil, floor, sqrt
from operator import itemgetter
from statistics import fmean, variance
from typing import Final, TypeVar

from extender.kubelet.admission import admit, start_pod
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.questions.asked import Asked
from extender.questions.finding import OUT_OF_TIME, blind_spots, placed_by_kubelet, progress, subjects_of
from extender.questions.node_context import Subject
from extender.questions.node_pods import pods_of
from extender.questions.plan import entries_of
from extender.questions.reading import question_of
from extender.questions.restart_check import allocatable_after, restart_check
from extender.questions.snapshot import Snapshot
from extender.questions.tune_changes import FIELDS, WITH_POLICY, Change, config_with, different, patch_of
from extender.questions.tune_front import ORDERS, Measures, Trial, Tuned, front, guarantee_of, t_value
from extender.questions.words import plural
from extender.replay.alignment import Alignment, alignment_of_outcome
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import add, exceeds, pod_requests
from extender.wire.advice_replies import KubeletPatch, TunedConfiguration, TuneReply, TuneRestart
from extender.wire.questions import TuneRequest
from extender.wire.replies import ReplyBody
from extender.wire.verdicts import alignment_counts
from extender.wire.workloads import PodWorkload

T = TypeVar("T")


class Draw:
    """A sequence of numbers that follows from a seed alone, so that every answer can be repeated."""

    def __init__(self, seed: int) -> None:
        self._seed: Final = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """The next number from 0 to *limit* - 1."""
        self._count += 1
        digest = blake2b(f"{self._seed}/{self._count}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % limit

    def one_of(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in another order."""
        found = list(values)
        for last in range(len(found) - 1, 0, -1):
            other = self.below(last + 1)
            found[last], found[other] = found[other], found[last]
        return found


MAX_SAMPLES: Final = 4
"""How many of a group of equal nodes are replayed, each in its own order. The other nodes count like these."""
MAX_REPLAYS: Final = 260_000
"""Pods that are replayed for one question: 1,160 pods under 32 configurations in `ORDERS` orders."""
FIRST_SHARE, SEARCH_SHARE = 0.3, 0.5
"""The shares of the time after which no further node is replayed, and no further configuration."""
MAX_FRONT: Final = 6
"""How many configurations of the front are listed."""
RESTART_SHARE: Final = 0.85
"""The share of the time after which no further configuration is checked for restarts."""
MAX_CHOICES: Final = 4
"""How many random choices of devices are followed for one pod."""


@dataclass(frozen=True, slots=True)
class _EqualNodes:
    """Equal nodes with equal pods, and the pods of each of them with their requests."""

    subjects: Sequence[Subject]
    pods: Sequence[tuple[Pod, Mapping[str, int]]]

    @property
    def subject(self) -> Subject:
        """One of them."""
        return self.subjects[0]

    @property
    def nodes(self) -> int:
        """The number of these nodes."""
        return len(self.subjects)

    @property
    def free_cpus(self) -> int:
        """The CPUs of all of them that are not reserved."""
        assert self.subject.kubelet is not None
        return self.nodes * (self.subject.kubelet.machine.all_cpus & ~self.subject.kubelet.reserved_cpus).bit_count()

    def samples(self) -> Iterator[int]:
        """The number of nodes that each sample stands for. One sample is enough if all pods have one shape."""
        count = min(self.nodes, MAX_SAMPLES) if len({pod.shape for pod, _ in self.pods}) > 1 else 1
        return (self.nodes // count + (number < self.nodes % count) for number in range(count))


class Tune:
    """The search. *pods*: a list to replay; None: every node's own pods (then *subjects* have their facts)."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        pods: Sequence[PodWorkload] | None,
        seed: int,
        limit: int,
        spent: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """*spent*: the share of the time that is over. The search ends at `SEARCH_SHARE` of it."""
        known = [s for s in subjects if s.kubelet is not None and s.states]
        self._seed, self._limit, self._spent = seed, limit, spent
        self.is_late = False
        drawn = _drawn(known, pods, MAX_REPLAYS // (ORDERS * limit))
        self._groups = _grouped(drawn)
        self._nodes: Final = len(known)
        self.steps: Final = ORDERS * limit
        self._changes: Final = list(self._all_changes())
        self.configurations: Final = len(self._changes)
        """How many there are in all; `limit` of them are tried."""

    def run(self) -> Iterator[Sequence[Tuned]]:
        """All configurations so far, after each trial; the present one first. The last value has the front marked."""
        found: list[Tuned] = []
        for change in self._changes[: self._limit]:
            tuned = Tuned(change)
            for order in range(1, ORDERS + 1):
                is_first = not found and not tuned.trials
                trial = self._trial(change, order, FIRST_SHARE if is_first else SEARCH_SHARE, is_first=is_first)
                if trial is None:
                    break
                tuned.trials.append(trial)
                yield [*found, tuned]
            if found and len(tuned.trials) < ORDERS:
                break
            tuned.guarantees = [guarantee_of(config_with(group.subject, change)) for group in self._groups]
            found.append(tuned)
        for each in front(found):
            each.is_best = True
        yield found

    @property
    def subjects(self) -> list[Subject]:
        """The nodes that are replayed, by name."""
        found = (subject for group in self._groups for subject in group.subjects)
        return sorted(found, key=lambda subject: subject.name)

    @property
    def nodes_left_out(self) -> int:
        """Known nodes that are not replayed, because there are too many."""
        return self._nodes - sum(group.nodes for group in self._groups)

    @property
    def pods(self) -> int:
        """Pods on the nodes that are replayed."""
        return sum(len(group.pods) * group.nodes for group in self._groups)

    def nodes_weaker(self, each: Tuned, now: Tuned) -> int:
        """On how many nodes a configuration guarantees less than the present one."""
        pairs = zip(self._groups, each.guarantees, now.guarantees, strict=True)
        return sum(group.nodes for group, mine, before in pairs if mine.is_weaker(before))

    def _all_changes(self) -> Iterator[Change]:
        """The present configuration, and all that differ from it on some node: fewer fields first."""
        fields = {
            name: [str(value) for value in values if self._differs(((name, str(value)),))]
            for name, values in FIELDS.items()
        }
        for count in range(len(fields) + 1):
            for names in combinations(fields, count):
                for values in product(*(fields[name] for name in names)):
                    change = tuple(sorted(zip(names, values, strict=True)))
                    if ("topologyManagerPolicy", "none") not in change or not WITH_POLICY.intersection(names):
                        yield change

    def _differs(self, change: Change) -> bool:
        return any(config_with(group.subject, change) != config_with(group.subject, ()) for group in self._groups)

    def _late(self, share: float) -> bool:
        self.is_late = self.is_late or self._spent() > share
        return self.is_late

    def spread(self, tuned: Tuned, measure: str = "admitted") -> tuple[int, int]:
        """The range in which a measure is in 19 of 20 orders of arrival: a prediction interval.

        It adds the variance of one more order and the variance of the mean. The degrees of freedom are Satterthwaite's.
        With fewer than `ORDERS` orders, because the time was over, any number is in it.
        """
        mean = fmean(getattr(trial.measures, measure) for trial in tuned.trials)
        most = sum(group.free_cpus for group in self._groups) if measure == "stranded_cpus" else self.pods
        if len(tuned.trials) < ORDERS:
            return 0, most
        squares = doubts = 0.0
        for number, group in enumerate(self._groups):
            counts = [getattr(each, measure) for trial in tuned.trials for each in trial.by_group[number]]
            if len(set(counts)) > 1:
                square = variance(counts) * (group.nodes + group.nodes**2 / len(counts))
                squares, doubts = squares + square, doubts + square**2 / (len(counts) - 1)
        margin = t_value(int(squares**2 / doubts)) * sqrt(squares) if doubts else 0.0
        return max(0, floor(mean - margin)), min(most, ceil(mean + margin))

    def _trial(self, change: Change, order: int, share: float, *, is_first: bool = False) -> Trial | None:
        """One order of arrival; None if that share of the time is over before its end.

        *is_first*: then the nodes that are left are replayed under no configuration.
        """
        alignments: Counter[Alignment] = Counter()
        stranded = failing = 0
        by_group: list[list[Measures]] = []
        draw = Draw(self._seed * 1000 + order)
        picks = Draw(~(self._seed * 1000 + order))  # apart, so that every configuration gets the same orders
        for number, group in enumerate(self._groups):
            if self._late(share) and not (is_first and number == 0):
                if not is_first:
                    return None
                self._groups = self._groups[:number]
                break
            assert group.subject.kubelet is not None
            by_group.append([])
            try:
                kubelet = start(group.subject.kubelet.machine, config_with(group.subject, change))
            except KubeletConfigError:
                failing += group.nodes
                stranded += group.free_cpus
                continue
            for nodes in group.samples():
                found, waste = _replay(kubelet, group.subject, draw.shuffled(group.pods), picks)
                by_group[-1].append(Measures(found.total(), found[Alignment.ALIGNED], waste))
                alignments.update({alignment: count * nodes for alignment, count in found.items()})
                stranded += nodes * waste
        return Trial(alignments=alignments, by_group=by_group, stranded_cpus=stranded, failing_nodes=failing)


def _drawn(
    subjects: Sequence[Subject], pods: Sequence[PodWorkload] | None, most: int
) -> list[tuple[Subject, Sequence[PodWorkload]]]:
    """Nodes with their pods, as many as have at most *most* pods, and at least one."""
    drawn: dict[int, Sequence[PodWorkload]] = {}
    left = most
    for number in Draw(0).shuffled(range(len(subjects))):
        own = [pod.workload for pod in pods_of(subjects[number])] if pods is None else pods[number :: len(subjects)]
        if drawn and len(own) > left:
            break
        drawn[number], left = own, left - max(1, len(own))
    return [(subjects[number], drawn[number]) for number in sorted(drawn)]


def _grouped(drawn: Sequence[tuple[Subject, Sequence[PodWorkload]]]) -> list[_EqualNodes]:
    groups: dict[object, _EqualNodes] = {}
    for subject, pods in drawn:
        assert subject.kubelet is not None
        own = sorted(
            ((repr(each.pod.shape), each.pod, pod_requests(each.pod, each.rules.overhead_milli)) for each in pods),
            key=itemgetter(0),
        )
        numbered = [(replace(pod, uid=f"what-if-{i}"), requests) for i, (_, pod, requests) in enumerate(own)]
        empty = initial_state(subject.kubelet, subject.states[0].devices.devices)
        key = subject.kubelet.identity, empty.devices.key, tuple(shape for shape, _, _ in own)
        known = groups.get(key)
        subjects = [subject] if known is None else [*known.subjects, subject]
        groups[key] = _EqualNodes(subjects, numbered)
    return list(groups.values())


def _replay(
    kubelet: Kubelet, subject: Subject, pods: Sequence[tuple[Pod, Mapping[str, int]]], picks: Draw
) -> tuple[Counter[Alignment], int]:
    """Alignments of the admitted pods, and stranded CPUs, of one node."""
    before, devices = subject.kubelet, subject.states[0].devices
    assert before is not None
    state = initial_state(kubelet, devices.devices)
    allocatable = allocatable_after(subject, before, kubelet)
    used: Mapping[str, int] = {}
    found: Counter[Alignment] = Counter()
    sizes = set()
    for pod, wanted in pods:
        request = resolve(pod, kubelet.rules)
        outcome = admit(kubelet, state, request, max_replays=MAX_CHOICES)
        if outcome.alternatives:
            outcome = picks.one_of((outcome, *outcome.alternatives))
        alignment = alignment_of_outcome(kubelet, outcome)
        if alignment is None or exceeds(wanted, allocatable, [used]):
            continue
        found[alignment.alignment] += 1
        sizes.add(max((c.cpus for c in request.containers), default=0))
        used = add(used, wanted)
        state = start_pod(outcome.state, request)
    free = state.cpu.default & ~kubelet.reserved_cpus if kubelet.cpu_static else 0
    smallest = min(sizes - {0}, default=0 if sizes or not pods else kubelet.machine.num_cpus + 1)
    rests = [(free & bits).bit_count() for bits in kubelet.machine.numa_cpus.values()]
    return found, sum(rest for rest in rests if rest < smallest)


def tune_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `TuneReply`."""
    del judge  # no scheduler chooses here
    question = question_of(asked, TuneRequest)
    entries = entries_of(asked, question.pods, [f"pods[{i}].pod" for i in range(len(question.pods))])
    pods = [workload for workload, copies in entries for _ in range(copies)] if question.pods else None
    subjects, left_out = placed_by_kubelet(subjects_of(snapshot, question.nodes))
    search = Tune(subjects, pods, question.seed, question.configurations, asked.spent)
    drawn = {each.name for each in search.subjects}
    pods_on = (lambda each: pods_of(each) if each.name in drawn else []) if pods is None else None
    notes = [*left_out, *blind_spots(subjects, pods_on)]
    of = search.steps + MAX_FRONT + 1
    found: Sequence[Tuned] = ()
    for done, so_far in enumerate(search.run(), start=1):
        found = so_far
        yield from progress(min(done, search.steps), of)
    now = next(each for each in found if not each.change)
    front = sorted((e for e in found if e.is_best and e.change), key=lambda e: (e.is_weaker(now), [-v for v in e.rank]))
    rows = []
    for done, each in enumerate([now, *front[:MAX_FRONT]], start=search.steps + 1):
        rows.append(_row(search, each, now, is_late=lambda: asked.spent() > RESTART_SHARE))
        yield from progress(done, of)
    if search.nodes_left_out:
        count = len(search.subjects)
        notes.append(
            f"{plural(count, 'node')} of {count + search.nodes_left_out} {'was' if count == 1 else 'were'} replayed, "
            "drawn at random: all numbers are for these nodes only"
        )
    if search.is_late:
        notes.append(f"the time was over after {plural(len(found), 'configuration')}; {OUT_OF_TIME}")
    elif len(found) < search.configurations:
        notes.append(f"{len(found)} of {search.configurations} configurations were tried, fewer changes first")
    if len(front) > MAX_FRONT:
        notes.append(f"{len(front) - MAX_FRONT} more that no other one surpasses are not listed; these admit more pods")
    notes.append(
        "no scheduler is replayed: each node keeps its own pods, or gets its share of the list; a pod that one node "
        "refuses counts as refused, where a scheduler would look for another node"
    )
    yield TuneReply(
        configurations=rows,
        pods=search.pods,
        nodes=len(search.subjects),
        tried=len(found),
        complete=not search.is_late and not search.nodes_left_out and len(found) == search.configurations,
        seed=question.seed,
        notes=notes,
    )


def _row(search: Tune, each: Tuned, now: Tuned, *, is_late: Callable[[], bool]) -> TunedConfiguration:
    count = len(each.trials)
    sums: Counter[Alignment] = Counter()
    for trial in each.trials:
        sums.update(trial.alignments)
    spreads = {name: search.spread(each, name) for name in Measures._fields}
    return TunedConfiguration(
        current=not each.change,
        best=each.is_best,
        change=dict(each.change),
        patches=_patches(search, each.change),
        admitted=round(sum(trial.admitted for trial in each.trials) / count),
        **{f"{name}_least": least for name, (least, _) in spreads.items()},
        **{f"{name}_most": most for name, (_, most) in spreads.items()},
        guarantee_ends=search.nodes_weaker(each, now),
        **alignment_counts({alignment: round(value / count) for alignment, value in sums.items()}),
        refused=round(sum(search.pods - trial.admitted for trial in each.trials) / count),
        stranded_cpus=round(sum(trial.stranded_cpus for trial in each.trials) / count),
        failing_nodes=max(trial.failing_nodes for trial in each.trials),
        restart=_restart(search, each.change, is_late) if each.change else None,
    )


def _patches(search: Tune, change: Change) -> list[KubeletPatch]:
    """The change as KubeletConfiguration. Nodes with the same change are together; other nodes are left out."""
    found: dict[str, tuple[dict[str, object], list[str]]] = {}
    for subject in search.subjects:
        assert subject.kubelet is not None
        fields = different(subject.kubelet.config, config_with(subject, change), change)
        if fields:
            found.setdefault(repr(fields), (fields, []))[1].append(subject.name)
    return [KubeletPatch(nodes=nodes, patch=patch_of(fields)) for fields, nodes in found.values()]


def _restart(search: Tune, change: Change, is_late: Callable[[], bool]) -> TuneRestart | None:
    """What restart-check says of the change, counted; None if the time is over before all nodes are checked."""
    results = []
    for subject in search.subjects:
        if is_late():
            return None
        results.append(restart_check(subject, config_with(subject, change)))
    return TuneRestart(
        files_refused=sum(bool(each.info.refused_files) for each in results),
        not_starting=sum(bool(each.info.error) for each in results),
        pods_failing=sum(each.info.fails + each.info.may_fail for each in results),
        pods_to_drain=sum(len(each.drain_first) for each in results),
    )
