"""The index of the classes of nodes, and the numbers of nodes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.class_index import NO_SLOT, ClassIndex, NameTable
from extender.cluster.node_class import AWAITED, UNKNOWN, NodeClass

ONE, OTHER = (replace(UNKNOWN, id=i) for i in (1, 2))


def _at(index: ClassIndex, *names: str) -> list[NodeClass]:
    found: list[NodeClass] = index.classes[index.names.slots_of(names)].tolist()
    return found


def test_what_a_call_took_out_of_the_index_never_changes() -> None:
    index = ClassIndex(AWAITED)
    index.put("a", ONE)
    before = index.classes[index.names.slots_of(["b", "a"])]

    index.put("a", OTHER)
    index.put("b", ONE)
    index.set_unknown(UNKNOWN)

    assert before.tolist() == [AWAITED, ONE]
    assert _at(index, "c", "b", "a") == [UNKNOWN, ONE, OTHER]
    assert index.names.get("c") == NO_SLOT


def test_the_same_names_have_other_slots_after_a_node_has_come_or_gone() -> None:
    index = ClassIndex(AWAITED)
    index.put("a", ONE)
    assert _at(index, "a", "b") == [ONE, AWAITED]
    index.put("b", OTHER)
    assert _at(index, "a", "b") == [ONE, OTHER]
    index.remove("a")
    assert _at(index, "a", "b") == [AWAITED, OTHER]
    index.put("c", ONE)  # in the slot of a
    assert _at(index, "a", "b") == [AWAITED, OTHER]


def test_the_version_changes_with_each_change_and_with_nothing_else() -> None:
    index = ClassIndex()
    index.put("a", ONE)
    version = index.version

    assert index.put("a", ONE) is ONE
    assert index.version == version
    index.put("a", OTHER)
    index.remove("a")
    index.set_unknown(AWAITED)
    assert index.version == version + 3


_names = st.text(st.characters(codec="ascii"), min_size=1, max_size=20)
_events = st.lists(st.tuples(st.sampled_from(["put", "drop", "read"]), st.integers(0, 30)), max_size=80)


@given(
    st.lists(st.one_of(_names, st.sampled_from([f"node-{i}" for i in range(20)])), min_size=31, unique=True), _events
)
def test_the_index_is_a_dictionary_of_classes_whatever_happens(names: list[str], events: list[tuple[str, int]]) -> None:
    index, expected = ClassIndex(AWAITED), dict[str, NodeClass]()
    for number, (what, which) in enumerate(events, 1):
        name = names[which]
        if what == "put":
            expected[name] = replace(UNKNOWN, id=number)
            index.put(name, expected[name])
        elif what == "drop" and name in expected:
            assert index.remove(name) is expected.pop(name)
        slots = index.names.slots_of(names)
        classes = [expected.get(each, AWAITED) for each in names]
        assert classes == _at(index, *names) == [index[each] for each in names]
        assert index.ids[slots].tolist() == [each.id for each in classes]


def test_thousands_of_names_are_found_and_no_other_ones() -> None:
    table = NameTable()
    names = [f"ip-10-{i // 250}-{i % 250}.example" for i in range(20_000)]
    slots = [table.add(name) for name in names]
    strangers = [*(f"ip-10-{i // 250}-{i % 250}.exampl" for i in range(5_000)), "a" * 300]

    found = table.slots_of([*names, *strangers]).tolist()

    assert found == slots + [NO_SLOT] * len(strangers)


def test_a_table_whose_names_come_and_go_stays_small() -> None:
    table = NameTable()
    for i in range(20_000):
        table.add(f"n{i}")
        assert table.slots_of([f"n{i}"]).tolist() == [0]
        table.remove(f"n{i}")
