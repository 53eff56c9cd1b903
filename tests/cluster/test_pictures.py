"""Pictures of the cluster, and what changed between them."""

from dataclasses import replace

from extender.cluster.classes import AWAITED, UNKNOWN
from extender.cluster.pictures import MAX_CHANGES, Classing

ONE, OTHER = (replace(UNKNOWN, id=i) for i in (1, 2))


def test_a_picture_stays_what_it_was() -> None:
    classing = Classing(AWAITED)
    classing.put("a", ONE)
    before = classing.picture()

    classing.put("a", OTHER)
    classing.put("b", ONE)
    classing.set_nobody(UNKNOWN)

    assert before.classes_of(["b", "a"]) == [AWAITED, ONE]
    assert classing.picture().classes_of(["c", "b", "a"]) == [UNKNOWN, ONE, OTHER]
    assert "c" not in classing.picture()


def test_one_picture_serves_until_a_node_is_of_another_class() -> None:
    classing = Classing()
    classing.put("a", ONE)
    picture = classing.picture()

    assert classing.put("a", ONE) is ONE
    assert classing.picture() is picture
    assert classing.changed_since(picture.moment) == []


def test_what_changed_since_a_picture_is_told() -> None:
    classing = Classing()
    classing.put("a", ONE)
    first = classing.picture()
    classing.put("b", ONE)
    second = classing.picture()
    classing.put("b", OTHER)
    assert classing.remove("a") is ONE

    assert classing.changed_since(first.moment) == ["b", "b", "a"]
    assert classing.changed_since(second.moment) == ["b", "a"]


def test_more_changes_than_are_remembered_are_not_told() -> None:
    classing = Classing()
    classing.put("a", ONE)
    moment = classing.picture().moment
    for i in range(2 * MAX_CHANGES):
        classing.put("a", (OTHER, ONE)[i % 2])

    assert classing.changed_since(moment) is None
    assert classing.changed_since(classing.picture().moment - 3) == ["a"] * 3


def test_a_new_class_of_unknown_names_is_a_change_of_who_knows_how_many() -> None:
    classing = Classing(AWAITED)
    classing.put("a", ONE)
    moment = classing.picture().moment

    classing.set_nobody(UNKNOWN)

    assert classing.changed_since(moment) is None
    assert classing.changed_since(classing.picture().moment) == []
