"""Documents bent within their declared types: what the wire takes, and no honest writer would send.

The types are those of the wire itself: the dataclasses of `node_exporter.report`, and the models with which the reader
reads the documents of other programs inside a report. So a new field is bent as soon as it is declared. A place is
chosen by its declaration, so that a field of one container counts as much as one of thousands of CPUs.
"""

import dataclasses
import random
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel

from extender.wire import nri_scenarios, state_files
from node_exporter.report import NodeReport

JSON = Any
DOCUMENTS: Final[Mapping[str, Any]] = {
    "config": nri_scenarios._Config,
    "cpu_manager_state": state_files._CPUDocument,
    "memory_manager_state": state_files._MemoryDocument,
    "kubelet_internal_checkpoint": state_files._DeviceDocument,
}
"""The models of documents of other programs, by the field that has them."""
TEXTS: Final = (
    "", "a", "0", "0-3", "0-4095", "1,3,5,7", "static", "None", "best-effort", "100m", "1Gi", "-1", "é",
    "\u202e\x1b[31m",
    "x" * 300, "*" + "a*" * 2000 + "b", "true", "NUMA node #0", "root", "v1.99.0", "uid-0",
)  # fmt: skip
COUNTS: Final = (0, 1, 2, 300, 3000)


class Place(NamedTuple):
    """Where a value of a declared type is: `pattern` names the declaration, `put` replaces the value."""

    pattern: str
    kind: Any
    value: JSON
    put: Callable[[JSON], None]


def bent(document: JSON, chance: random.Random, *, places: int = 1, kind: Any = NodeReport) -> JSON:  # noqa: ANN401
    """The document with as many places changed for other values of their types; *document* itself is changed."""
    for _ in range(places):
        found: dict[str, list[Place]] = {}
        for place in _places(document, kind, ""):
            found.setdefault(place.pattern, []).append(place)
        place = chance.choice(found[chance.choice(sorted(found))])
        place.put(_other(place, chance))
    return document


def _other(place: Place, chance: random.Random) -> JSON:
    """Another value: one of the type, or the same one, a hundred or a thousand times."""
    value = place.value
    if isinstance(value, list) and value and chance.random() < 0.6:
        return (value * (1 + max(COUNTS) // len(value)))[: chance.choice(COUNTS)]
    if isinstance(value, dict) and value and chance.random() < 0.3 and _origin(place.kind) is dict:
        some = list(value.values())
        return {f"k{i}": some[i % len(some)] for i in range(chance.choice(COUNTS))}
    return made(place.kind, chance)


def made(kind: Any, chance: random.Random, name: str = "", depth: int = 6) -> JSON:  # noqa: ANN401 - a type
    """A value of a type."""
    origin, args = _origin(kind), get_args(kind)
    if origin is Literal:
        return chance.choice(args)
    if origin is Union:
        return made(chance.choice(args), chance, name, depth)
    if kind is type(None) or depth <= 0:
        return None
    if fields := _fields(kind):
        return {key: made(of, chance, key, depth - 1) for key, of in fields if chance.random() < 0.9}
    if origin is dict:
        if name in DOCUMENTS and chance.random() < 0.9:
            return made(DOCUMENTS[name], chance, "", depth)
        return {
            chance.choice(TEXTS): made(args[1] if args else object, chance, "", depth - 1)
            for _ in range(chance.randrange(4))
        }
    if origin is list:
        if args and len(args) > 1 and args[1] is not Ellipsis:
            return [made(each, chance, "", depth - 1) for each in args]
        return [made(args[0] if args else object, chance, "", depth - 1) for _ in range(chance.choice((0, 1, 3, 40)))]
    if kind is bool:
        return chance.random() < 0.5
    if kind is int:
        return chance.choice((0, 1, 2, 7, 63, 64, 4095, 2**31 - 1, 2**62, 2**63 - 1, -1))
    if kind is float:
        return chance.choice((0.0, 1.0, -1.0, 1.79e9, 1e300))
    if kind is str:
        return chance.choice(TEXTS)
    return chance.choice((None, 1, "a", [], {}, [[]], {"a": [1]}))


def _origin(kind: Any) -> Any:  # noqa: ANN401 - a type
    origin = get_origin(kind)
    if origin is types.UnionType:
        return Union
    if origin is typing.Annotated:
        return _origin(get_args(kind)[0])
    if origin in (Sequence, list, tuple):
        return list
    return dict if origin in (Mapping, dict) else origin


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:  # noqa: ANN401 - a type
    """Names in JSON and types of the fields; none: it has no fields."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return tuple((field.alias or name, field.annotation) for name, field in kind.model_fields.items())
    return ()


def _places(value: JSON, kind: Any, pattern: str, name: str = "") -> Iterator[Place]:  # noqa: ANN401 - a type
    """All places below a value of the type."""
    origin, args = _origin(kind), get_args(kind)
    if origin is Union:
        kind = next((each for each in args if each is not type(None)), None)
        yield from _places(value, kind, pattern, name)
        return
    if name in DOCUMENTS:
        kind = DOCUMENTS[name]
    if isinstance(value, dict):
        inner = dict(_fields(kind))
        if not inner and origin is dict and args:
            inner = dict.fromkeys(list(value)[:20], args[1])
        for key, each in inner.items():
            at = f"{pattern}.{key if _fields(kind) else '*'}"
            yield Place(at, each, value.get(key), _setter(value, key))
            yield from _places(value.get(key), each, at, key)
    elif isinstance(value, list) and args:
        for index, item in list(enumerate(value))[:20]:
            is_tuple = len(args) > 1 and args[1] is not Ellipsis
            each = args[min(index, len(args) - 1)] if is_tuple else args[0]
            at = f"{pattern}[{index if is_tuple else ''}]"
            yield Place(at, each, item, _setter(value, index))
            yield from _places(item, each, at)


def _setter(parent: JSON, key: Any) -> Callable[[JSON], None]:  # noqa: ANN401 - a name or an index
    return lambda value: parent.__setitem__(key, value)
