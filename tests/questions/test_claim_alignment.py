"""Whether claimed devices and what the kubelet gives can be on one NUMA node: by example, and as a law."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np
import pytest

from extender.kubelet.pod import Container, ContainerKind
from extender.kubelet.verdict import Certainty
from extender.questions.claim_alignment import (
    ClaimAlignment,
    Places,
    can_be_ranked,
    claim_alignment_of,
    ranked_by_claims,
)
from extender.questions.node_context import CPU_DRIVER, DynamicDevice
from extender.replay.alignment import NOTHING, Alignment, Spread
from extender.replay.pod import Pod
from extender.samples.machines import Hardware
from extender.scheduling.judgement import Judgement
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.scoring import MAX_SCORE
from tests.reports import sample

GPU, NIC = "gpu.example.com", "nic.example.com"
ON_0, ON_1, ON_EITHER = (Spread(Alignment.ALIGNED, mask) for mask in (1, 2, 3))
SPLIT = Spread(Alignment.SPLIT, 3)
TWO = sample().kubelet
ONE = sample(hardware=Hardware(sockets=1, numa_per_socket=1, cores_per_numa=8, threads=2, memory_gib=32)).kubelet


def _pod(*claims: tuple[str, ...]) -> Pod:
    """Containers c0, c1, … with these claims."""
    containers = [Container(name=f"c{i}", kind=ContainerKind.APP, claims=each) for i, each in enumerate(claims)]
    return Pod(uid="u", name="p", namespace="n", containers=tuple(containers))


def _placed(*spreads: Spread) -> dict[str, Spread]:
    return {f"c{i}": each for i, each in enumerate(spreads)}


def _device(number: int, numa: int | None, claim: str = "", driver: str = GPU) -> DynamicDevice:
    return DynamicDevice(driver, "pool", f"d{number}", 0 if numa is None else 1 << numa, claim)


@pytest.mark.parametrize(
    ("claims", "places", "devices", "expected"),
    [
        ([("n/a",)], [ON_0], [_device(0, 0)], ClaimAlignment.LIKELY),
        ([("n/a",)], [ON_0], [_device(0, 1)], ClaimAlignment.APART),
        ([("n/a",)], [ON_0], [_device(0, 1), _device(1, None)], ClaimAlignment.UNKNOWN),
        ([("n/a",)], [ON_0], [_device(0, 0), _device(1, 1, driver=NIC)], ClaimAlignment.UNKNOWN),
        ([("n/a",)], [ON_0], [_device(0, 0), _device(1, 0, driver=NIC)], ClaimAlignment.LIKELY),
        ([("n/a",)], [ON_0], [_device(0, 1), _device(1, 0, driver=CPU_DRIVER)], ClaimAlignment.APART),
        ([("n/a",)], [ON_0], [], ClaimAlignment.UNKNOWN),
        ([("n/a",)], [SPLIT], [_device(0, 0)], ClaimAlignment.APART),
        ([("n/a",)], [NOTHING], [_device(0, 0)], ClaimAlignment.UNKNOWN),
        ([("n/a",)], [ON_1], [_device(0, 1, "n/a"), _device(1, 0)], ClaimAlignment.LIKELY),
        ([("n/a",)], [ON_1], [_device(0, 0, "n/a"), _device(1, 1)], ClaimAlignment.APART),
        ([("n/a",)], [ON_1], [_device(0, None, "n/a")], ClaimAlignment.UNKNOWN),
        ([("n/a", "n/b")], [ON_0], [_device(0, 0), _device(1, 0)], ClaimAlignment.LIKELY),
        ([("n/a", "n/b")], [ON_0], [_device(0, 0), _device(1, 1)], ClaimAlignment.APART),
        ([("", "")], [ON_0], [_device(0, 0)], ClaimAlignment.APART),
        ([("n/a",), ("n/b",)], [ON_0, ON_1], [_device(0, 0), _device(1, 1)], ClaimAlignment.POSSIBLE),
        ([("n/a",)], [ON_0], [_device(0, 0), _device(1, 1)], ClaimAlignment.LIKELY),
        ([("n/a",)], [ON_0], [_device(0, 1), _device(1, 0)], ClaimAlignment.POSSIBLE),
        ([("n/a",)], [ON_EITHER], [_device(0, 0)], ClaimAlignment.UNKNOWN),
        ([("n/a",), ("n/a",)], [ON_0, ON_1], [_device(0, 0), _device(1, 1)], ClaimAlignment.APART),
        ([("n/a",), ()], [ON_0, SPLIT], [_device(0, 0)], ClaimAlignment.LIKELY),
        ([("n/a",)], [ON_EITHER], [_device(0, 1, "n/a")], ClaimAlignment.LIKELY),
    ],
)
def test_by_example(
    claims: list[tuple[str, ...]], places: list[Spread], devices: list[DynamicDevice], expected: ClaimAlignment
) -> None:
    assert claim_alignment_of(_pod(*claims), TWO, devices, [_placed(*places)]) is expected


def test_outcomes_that_differ_are_unknown_and_one_numa_node_is_enough() -> None:
    pod, devices = _pod(("n/a",)), [_device(0, 0)]

    def alignment(places: Places) -> ClaimAlignment:
        return claim_alignment_of(pod, TWO, devices, places)

    assert alignment([_placed(ON_0), _placed(ON_1)]) is ClaimAlignment.UNKNOWN
    assert alignment([_placed(ON_1), _placed(ON_1)]) is ClaimAlignment.APART
    assert alignment([]) is ClaimAlignment.UNKNOWN
    assert claim_alignment_of(pod, ONE, [], []) is ClaimAlignment.LIKELY
    assert claim_alignment_of(pod, None, devices, []) is ClaimAlignment.UNKNOWN


def test_answers_hold_whichever_drivers_serve_the_claims() -> None:
    answers = Counter(_checked(Random(seed), has_unsaid=seed % 2 == 1, has_nics=seed % 3 > 0) for seed in range(400))

    assert min(answers[each] for each in ClaimAlignment) > 10, "each answer was tried"


def _checked(random: Random, *, has_unsaid: bool, has_nics: bool) -> ClaimAlignment:
    """By trying: every way in which drivers serve the claims, and every choice of their free devices."""
    names = ["n/a", "n/b", "n/c"]
    claims = [tuple(random.sample(names, random.randint(0, 2))) for _ in range(2)]
    places = _placed(*random.choices([ON_0, ON_1, ON_EITHER, SPLIT], [4, 4, 1, 1], k=2))
    devices = []
    for number in range(random.randint(1, 4)):
        numa = random.choice([0, 0, 1, 1, None] if has_unsaid else [0, 1])
        claim = random.choice(names) if number == 0 and random.random() < 0.3 else ""
        device = _device(number, numa, claim, random.choice([GPU, NIC] if has_nics else [GPU]))
        devices.append(device._replace(numa=0b11) if numa is not None and random.random() < 0.2 else device)
    pod = _pod(*claims)
    answer = claim_alignment_of(pod, TWO, devices, [places])
    tried = list(_by_trying(pod, devices, places))

    if answer >= ClaimAlignment.POSSIBLE:
        assert all(any(choices) for choices in tried)
    if answer is ClaimAlignment.LIKELY:
        to_come = {claim for each in claims for claim in each} - {each.claim for each in devices}
        assert all(map(all, _by_trying(pod, _first(devices, len(to_come)), places)))
    if answer is ClaimAlignment.APART:
        assert not any(map(any, tried))
    return answer


def _first(devices: Sequence[DynamicDevice], count: int) -> list[DynamicDevice]:
    """The devices that claims have, and the first *count* free ones of each driver."""
    seen: Counter[str] = Counter()
    found = []
    for each in devices:
        seen[each.driver] += not each.claim
        if each.claim or seen[each.driver] <= count:
            found.append(each)
    return found


def _by_trying(pod: Pod, devices: Sequence[DynamicDevice], places: dict[str, Spread]) -> Iterator[list[bool]]:
    """For each way in which drivers serve the claims: whether each choice of devices meets the rest.

    A device that says nothing can be on either NUMA node.
    """
    of_claim = {each.claim: each for each in devices if each.claim}
    free = [each for each in devices if not each.claim]
    to_come = sorted({claim for c in pod.containers for claim in c.claims} - of_claim.keys())
    drivers = sorted({each.driver for each in free})
    for unsaid in itertools.product(*((each.numa,) if each.numa else (1, 2) for each in devices)):
        numa = {each.key: on for each, on in zip(devices, unsaid, strict=True)}
        for served_by in itertools.product(drivers, repeat=len(to_come)):
            choices = [
                chosen
                for chosen in itertools.permutations(free, len(to_come))
                if tuple(each.driver for each in chosen) == served_by
            ]
            if choices or not to_come:  # otherwise kube-scheduler does not offer the node
                yield [
                    _is_met(pod, places, numa, of_claim | dict(zip(to_come, chosen, strict=True)))
                    for chosen in choices or [()]
                ]


def _is_met(
    pod: Pod, places: dict[str, Spread], numa: dict[tuple[str, str, str], int], has: dict[str, DynamicDevice]
) -> bool:
    for container in pod.containers:
        place = places[container.name]
        if container.claims and place.alignment is Alignment.SPLIT:
            return False
        if not any(
            place.numa >> node & 1 and all(numa[has[claim].key] >> node & 1 for claim in container.claims)
            for node in (0, 1)
        ):
            return False
    return True


def test_bands_order_nodes_by_meeting_first_and_keep_the_order_within() -> None:
    for seed in range(100):
        _check_bands(Random(seed))


def ranked(scores: list[int], alignments: list[ClaimAlignment], judgements: list[Judgement]) -> list[int]:
    kinds = np.array([can_be_ranked(each) for each in judgements], np.bool_)
    found: list[int] = ranked_by_claims(np.array(scores, np.uint8), alignments, kinds).tolist()
    return found


def _check_bands(random: Random) -> None:
    count = random.randint(1, 8)
    before = [random.randint(0, MAX_SCORE) for _ in range(count)]
    alignments = random.choices(list(ClaimAlignment), k=count)
    after = ranked(before, alignments, [Judgement(None, Certainty.EXACT, 0)] * count)

    assert all(0 <= each <= MAX_SCORE for each in after)
    if len(set(alignments)) == 1:
        assert after == before
    for a, b in itertools.permutations(range(count), 2):
        if alignments[a] > alignments[b]:
            assert after[a] > after[b]
        elif alignments[a] == alignments[b] and before[a] >= before[b]:
            assert after[a] >= after[b]


def test_refused_nodes_and_nodes_of_which_nothing_is_known_keep_0() -> None:
    judgements = [
        Judgement(RefusalReason.UNKNOWN, Certainty.EXACT),
        Judgement(None, Certainty.UNKNOWN),
        Judgement(None, Certainty.EXACT, 0),
        Judgement(None, Certainty.EXACT, 0),
    ]
    alignments = [ClaimAlignment.LIKELY, ClaimAlignment.UNKNOWN, ClaimAlignment.LIKELY, ClaimAlignment.APART]

    assert ranked([0, 0, 10, 10], alignments, judgements) == [0, 0, 10, 2]
    assert ranked([0, 0, 10, 4], [*alignments[:3], ClaimAlignment.LIKELY], judgements) == [0, 0, 10, 4]
