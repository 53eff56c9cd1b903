"""Nominations: how long they are believed, and against whom they hold."""

import pytest

from extender.cluster.nominations import DELETE_SECONDS, KEEP_SECONDS, Nominations
from extender.cluster.pods import KnownPods
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

POD = pod_from_json(pod_of(name="urgent"))


def _noted(*, watched: bool = False) -> Nominations:
    nominations = Nominations(2)
    nominations.note(POD, 7, "n", 100.0, watched=watched)
    return nominations


def test_a_nomination_that_only_calls_tell_of_ends_after_a_while() -> None:
    nominations = _noted()

    assert nominations.of(POD.uid, 100.0 + KEEP_SECONDS - 0.1) is not None
    assert nominations.of(POD.uid, 100.0 + KEEP_SECONDS) is None
    assert nominations.by_node(100.0 + KEEP_SECONDS) == {}
    assert len(nominations) == 0


def test_a_watched_nomination_is_kept_for_a_while_after_it_was_cleared() -> None:
    nominations = _noted(watched=True)
    nominations.note(POD, 7, "n", 200.0)
    assert nominations.of(POD.uid, 1e6) is not None

    nominations.cleared(POD.uid, 300.0)
    nominations.note(POD, 7, "", 301.0)

    assert nominations.of(POD.uid, 300.0 + KEEP_SECONDS - 0.1) is not None
    assert nominations.of(POD.uid, 300.0 + KEEP_SECONDS) is None


def test_another_node_replaces_the_first_and_begins_anew() -> None:
    nominations = _noted()
    nominations.note(POD, 7, "n", 110.0)
    nominations.note(POD, 7, "m", 120.0)

    (nomination,) = nominations.by_node(120.0)["m"]
    assert nomination.since == 120.0
    assert nominations.by_node(120.0).keys() == {"m"}


def test_a_pod_that_is_bound_or_gone_is_nominated_no_more() -> None:
    for end in ("bound", "watched", "gone"):
        pods = KnownPods(10)
        pods.nominations.note(POD, 7, "n", 100.0, watched=True)
        getattr(pods, end)(*((POD.uid,) if end == "gone" else (POD.uid, "n")))
        assert pods.nominations.of(POD.uid, 100.0) is None


@pytest.mark.parametrize(
    ("priority", "since", "precedes"), [(6, 50.0, True), (7, 150.0, True), (7, 50.0, False), (8, 150.0, False)]
)
def test_a_nomination_goes_before_lower_priorities_and_later_equals(
    priority: int, since: float, *, precedes: bool
) -> None:
    nomination = _noted().of(POD.uid, 100.0)
    assert nomination is not None

    assert nomination.precedes("other", priority, since) is precedes
    assert not nomination.precedes(POD.uid, priority, since)


def test_proposed_victims_count_for_a_moment() -> None:
    nominations = _noted()
    nominations.propose(POD.uid, {"n": ("v",)}, 100.0)

    assert nominations.victims(POD.uid, "n", 100.0) == {"v"}
    assert nominations.victims(POD.uid, "m", 100.0) == frozenset()
    assert nominations.victims(POD.uid, "n", 100.0 + DELETE_SECONDS) == frozenset()


def test_the_oldest_go_where_there_are_too_many() -> None:
    nominations = Nominations(2)
    for number in range(3):
        pod = pod_from_json({**pod_of(), "metadata": {"name": "p", "uid": f"u{number}"}})
        nominations.note(pod, 0, "n", 100.0)
        nominations.propose(pod.uid, {"n": ("v",)}, 100.0)

    assert [each.pod.uid for each in nominations.by_node(100.0)["n"]] == ["u1", "u2"]
    assert nominations.victims("u0", "n", 100.0) == frozenset()
