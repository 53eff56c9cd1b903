"""The extender with one of its properties undone: each bound of `attack_drill` must then fail under its attack.

`python -m tests.faults.mutants PROPERTY serve …` undoes the property and goes on as `python -m extender serve …`. A
mutant touches modules, never files. It is for one attack or several, see `OF_ATTACK`.
"""

import importlib
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Any, Final

import orjson


def objects_are_read_together() -> None:
    """Every part of an object is read, and one that cannot be read ends the watch."""
    from extender.kube import source

    def refuse(_self: object, _head: object, _known: object, error: Exception) -> None:
        raise error

    _put(source.ObjectReader, _instead=refuse)
    _put(source, read_object=_all_of_it)


def _all_of_it(raw: bytes, _reader: object) -> object:
    return orjson.loads(raw)


def annotations_are_parsed_at_once() -> None:
    """Every annotation is parsed as YAML when a pod is read, whether or not a node needs it."""
    from extender.wire import nri_pods, pods
    from extender.wire.documents import build_documents

    @lru_cache(1024)
    def parsed(text: str) -> Sequence[object]:
        try:
            return tuple(build_documents(text, 100_000))
        except ValueError:
            return ()

    original = nri_pods.metadata_of

    def eager(labels: object, annotations: object) -> object:
        for text in (annotations if isinstance(annotations, dict) else {}).values():
            parsed(str(text))
        return original(labels, annotations)

    _put(pods, metadata_of=eager)


def mirror_pods_stay() -> None:
    """What a mirror pod says holds room until a report shows the pod."""
    from extender.cluster import ledger

    def same(ledger: object, _uids: Collection[str]) -> object:
        return ledger

    _put(ledger, forget_mirrors=same, is_denied=lambda *_: False)


def projections_take_what_they_take() -> None:
    """A change of a node is followed to its end, on the event loop."""
    from extender.cluster import steps

    _put(steps, SEARCH_STEPS=10**12, LAST_STEPS=10**12, LOOP_STEPS=10**12, LOOP_STEPS_OF_ALL=10**12)
    _put(steps, MAX_STEPS_OF_ONE=10**9, MAX_WEIGHT=10**12)


def globs_are_free() -> None:
    """A pattern is compared with a text in the product of their lengths, and no step of it is counted."""
    from extender.nri import text as policy_text

    def product(pattern: str, text: str, _budget: object = None) -> bool:
        row = [True] + [False] * len(text)
        for character in pattern:
            if character == "*":
                for at in range(len(text)):
                    row[at + 1] = row[at + 1] or (row[at] and text[at] != "/")
            else:
                row = [False, *(row[at] and character in (each, "?") for at, each in enumerate(text))]
        return row[-1]

    _put(policy_text, glob_match=product)


def caches_keep_large_values() -> None:
    """Caches count what they keep, whatever its size, and no part of a report is too large."""
    from extender.kubelet import budget
    from extender.wire import nri_reports

    _put(budget, WeakValueDictionary=dict)
    _put(nri_reports, MAX_CONFIG_BYTES=1 << 30)


def specs_are_remembered_by_their_number() -> None:
    """What was read of pods is remembered whatever its size."""
    from extender import recent

    original = recent.RecentBytes.__init__

    def init(self: Any, most_bytes: int, _size_of: object) -> None:  # noqa: ANN401
        original(self, most_bytes, lambda _key, _result: most_bytes // 20_000)

    _put(recent.RecentBytes, __init__=init)


def refusals_count_for_everybody() -> None:
    """A pod that its kubelet refuses counts for pods of all namespaces, whatever the reason."""
    from extender.kube import feed
    from extender.scheduling.records import refusals

    class _Everything(frozenset[str]):
        def __contains__(self, _reason: object) -> bool:
            return True

    _put(feed, MANAGERS_REASONS=_Everything())
    original = refusals.RecentRefusals.note

    def note(self: Any, node_name: str, pod: Any, reason: str, now: float, *, is_ours: bool) -> None:  # noqa: ANN401, ARG001
        original(self, node_name, pod, reason, now, is_ours=True)

    _put(refusals.RecentRefusals, note=note)


def held_room_is_checked_to_the_end() -> None:
    """A call for another pod checks all places that are held, on the event loop."""
    from extender.features.groups import held_room

    _put(held_room, LOOP_STEPS=inf, ROOM_STEPS=inf, LOOP_CONTAINERS=10**9, STEPS_A_SECOND=10**12)


def caches_of_a_cpu_may_repeat() -> None:
    """A CPU may name one cache as often as it likes, and each level goes through all of them."""
    from extender.nri import cpu_groups
    from extender.wire import nri_reports

    def level_of(machine: Any) -> int | None:  # noqa: ANN401
        for cpu in machine.cpus:
            for level in range(len(cpu.caches) - 1, 0, -1):
                if cpu_groups._is_group(machine, cpu, cpu_groups._sharing(cpu).get(level, 0)):
                    return level
        return None

    _put(cpu_groups, _grouping_level=level_of)
    _put(nri_reports, MAX_CACHES_A_CPU=10**9)


def the_newest_sibling_answers() -> None:
    """A new node is judged as the newest one of its kind."""
    from extender.features.siblings import siblings

    _put(siblings, model_of=lambda compared: compared[0] if compared else None, excess=lambda *_: "")


def every_warning_is_logged() -> None:
    """Each warning of a library is logged, however often it comes."""
    from extender.observability import logs

    _put(logs.FewWarnings, filter=lambda *_: True)


def devices_may_be_on_any_numa_node() -> None:
    """The NUMA ids of a node's devices are numbers, and nothing else is asked of them."""
    from extender.wire import machines

    _put(machines, MAX_NUMA_ID_IN_DEVICE=2**64)


def claims_count_as_often_as_they_are_named() -> None:
    """The devices of a claim are looked up for each name of it, in each container."""
    from extender.features.claims import objector
    from extender.wire import pods

    original = objector.claimed_by

    def claimed_by(pod: Any, devices: Any, node_name: str) -> object:  # noqa: ANN401
        for claim in (claim for each in pod.containers for claim in each.claims):
            devices.devices_of(claim, node_name)
        return original(pod, devices, node_name)

    def used(value: Any, _path: str, claims: Mapping[str, tuple[str, str] | None]) -> tuple[str, ...]:  # noqa: ANN401
        return tuple(claim[0] for each in value or () if (claim := claims.get(each["name"])))

    _put(pods, _used=used)
    _put(objector, claimed_by=claimed_by)


OF_ATTACK: Final[Mapping[str, Callable[[], None]]] = {
    "B1 deep pod": objects_are_read_together,
    "B1 deep claim": objects_are_read_together,
    "B2 annotations": annotations_are_parsed_at_once,
    "B2 annotations, NRI": annotations_are_parsed_at_once,
    "B2 slow YAML": annotations_are_parsed_at_once,
    "B3 mirror pods": mirror_pods_stay,
    "B4 grants": projections_take_what_they_take,
    "B5 pods in flight": projections_take_what_they_take,
    "B6 globs of a pod": globs_are_free,
    "B6 globs of a node": globs_are_free,
    "B7 configurations": caches_keep_large_values,
    "B8 refusals": refusals_count_for_everybody,
    "B9 specs": specs_are_remembered_by_their_number,
    "S1 held groups": held_room_is_checked_to_the_end,
    "S2 caches": caches_of_a_cpu_may_repeat,
    "S3 tolerations": objects_are_read_together,
    "S4 sibling": the_newest_sibling_answers,
    "C1 claim names": claims_count_as_often_as_they_are_named,
    "S5 no HTTP": every_warning_is_logged,
    "A1 author": objects_are_read_together,
    "A2 wild node": devices_may_be_on_any_numa_node,
}
"""By the name of the attack that it must be seen under."""


def _put(where: Any, **values: object) -> None:  # noqa: ANN401 - a module or a class
    """Replace names that exist: a mutant of what was renamed must not pass unseen."""
    for name, value in values.items():
        assert hasattr(where, name), f"{where.__name__} has no {name}"
        setattr(where, name, value)


def main(name: str, arguments: list[str]) -> None:
    """Undo the property of this name, and run the extender."""
    {each.__name__: each for each in OF_ATTACK.values()}[name]()
    sys.argv = ["numa-extender", *arguments]
    importlib.import_module("extender.__main__").main()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
