"""Snapshots of the cluster, and what changed between them."""

from dataclasses import replace

from extender.cluster.node_class import AWAITED, UNKNOWN
from extender.cluster.snapshot import MAX_CHANGES, ClassIndex

ONE, OTHER = (replace(UNKNOWN, id=i) for i in (1, 2))


def test_a_snapshot_never_changes() -> None:
    index = ClassIndex(AWAITED)
    index.put("a", ONE)
    before = index.snapshot()

    index.put("a", OTHER)
    index.put("b", ONE)
    index.set_unknown(UNKNOWN)

    assert before.classes_of(["b", "a"]) == [AWAITED, ONE]
    assert index.snapshot().classes_of(["c", "b", "a"]) == [UNKNOWN, ONE, OTHER]
    assert "c" not in index.snapshot()


def test_one_snapshot_is_shared_until_a_node_changes_its_class() -> None:
    index = ClassIndex()
    index.put("a", ONE)
    snapshot = index.snapshot()

    assert index.put("a", ONE) is ONE
    assert index.snapshot() is snapshot
    assert index.changed_since(snapshot.generation) == []


def test_changes_since_a_snapshot_are_listed() -> None:
    index = ClassIndex()
    index.put("a", ONE)
    first = index.snapshot()
    index.put("b", ONE)
    second = index.snapshot()
    index.put("b", OTHER)
    assert index.remove("a") is ONE

    assert index.changed_since(first.generation) == ["b", "b", "a"]
    assert index.changed_since(second.generation) == ["b", "a"]


def test_more_changes_than_are_kept_are_not_listed() -> None:
    index = ClassIndex()
    index.put("a", ONE)
    generation = index.snapshot().generation
    for i in range(2 * MAX_CHANGES):
        index.put("a", (OTHER, ONE)[i % 2])

    assert index.changed_since(generation) is None
    assert index.changed_since(index.snapshot().generation - 3) == ["a"] * 3


def test_a_new_class_of_unknown_names_cannot_be_listed() -> None:
    index = ClassIndex(AWAITED)
    index.put("a", ONE)
    generation = index.snapshot().generation

    index.set_unknown(UNKNOWN)

    assert index.changed_since(generation) is None
    assert index.changed_since(index.snapshot().generation) == []
