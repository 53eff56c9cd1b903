"""The kinds of objects that the extender watches, found in its own modules, and what it does with one of each.

A module of `extender.kube` with another `Source` is fuzzed from then on. Objects whose kind has no schema are made of
what their reader asks for.
"""

import importlib
import logging
import pkgutil
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

import orjson

import extender.kube
from extender.features.groups.feed import sized_objects
from extender.features.preemption.nominated import decode_nominated
from extender.kube.pods import PodDecoder
from extender.kube.source import ObjectReader, Source
from extender.wire.errors import WireError
from extender.wire.groups import APIS, group_of
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import parse_args
from tests.faults.declared import Maker, Path, asked_by, asked_paths, grown, placed

JSON = dict[str, Any]
LOG: Final = logging.getLogger(__name__)
SCHEMAS: Final[Mapping[str, str]] = {
    "pods": "pod-v1",
    "nodes": "node-v1",
    "namespaces": "namespace-v1",
    "poddisruptionbudgets": "poddisruptionbudget-policy-v1",
    "resourceslices": "resourceslice-resource-v1",
    "resourceclaims": "resourceclaim-resource-v1",
    "scheduling.k8s.io/v1alpha3/podgroups": "podgroup-scheduling-v1alpha3",
    "scheduling.k8s.io/v1beta1/podgroups": "podgroup-scheduling-v1beta1",
}
"""By the end of the path."""


@cache
def sources() -> Mapping[str, Source[Any]]:
    """Every collection that is watched, by its path and selector."""
    found: list[Source[Any]] = [sized_objects(api) for api in APIS]
    for module in pkgutil.iter_modules(extender.kube.__path__, "extender.kube."):
        found += [each for each in vars(importlib.import_module(module.name)).values() if isinstance(each, Source)]
    return {f"{source.path} {source.field_selector}".strip(): source for source in found}


def read_by_watch(path: str) -> Callable[[bytes], object]:
    """What the watch at *path* does with an object."""
    source, known = sources()[path], dict[str, Any]()
    reader = ObjectReader(source, LOG, time.monotonic)
    return lambda raw: reader.read(raw, known).entry


def read_by_calls(pod: object) -> None:
    """What is done with the pod of a call of the scheduler. WireError is an answer to the caller."""
    with suppress(WireError):
        parse_args(orjson.dumps({"Pod": pod, "NodeNames": ["n"], "Nodes": None}))


def _pod_readers() -> list[Callable[[Any], object]]:
    """Everything that reads a v1.Pod, beside the watches."""

    def manifest(pod: JSON) -> None:
        decoded = PodDecoder()(pod)
        if decoded is not None:
            pod_from_json(decoded[1].manifest())

    return [decode_nominated, pod_from_json, group_of, manifest]


def schema_at(path: str) -> str | None:
    """The schema of the objects at the path of a source; None: it has none."""
    return next((schema for end, schema in SCHEMAS.items() if path.partition(" ")[0].endswith(end)), None)


@cache
def asked(schema: str) -> frozenset[Path]:
    """What all readers ask objects of this schema for."""
    readers: list[Callable[[Any], object]] = [
        source.decode for path, source in sources().items() if schema_at(path) == schema
    ]
    return asked_by([*readers, *_pod_readers()] if schema == "pod-v1" else readers, schema)


def made(schema: str, count: int, seed: int = 1) -> list[JSON]:
    """Objects with the fields that are asked for. Each has a name, a namespace and a UID."""
    maker = Maker(schema, asked(schema), random.Random(seed))
    objects = [maker.make() for _ in range(count)]
    for number, each in enumerate(objects):
        each["metadata"] = {**each.get("metadata", {}), "name": f"o-{number}", "namespace": "n", "uid": f"u-{number}"}
    return objects


def each_field_bent(path: str, values: Sequence[object]) -> Iterator[tuple[Path, JSON]]:
    """An object of a source with each of the values in each field that is asked for, and that field."""
    schema = schema_at(path)
    if schema is None:
        whole = grown(sources()[path].decode)
        fields = frozenset(asked_paths(sources()[path].decode, whole))
    else:
        whole, fields = Maker(schema, asked(schema), random.Random(1)).whole(), asked(schema)
        whole["metadata"] |= {"name": "n", "namespace": "n", "uid": "u"}
    for field in sorted(fields):
        for value in values:
            yield field, placed(whole, field, value)


def seeds(path: str) -> list[JSON]:
    """Good objects of a source."""
    schema = schema_at(path)
    return [grown(sources()[path].decode)] if schema is None else made(schema, 40)
