"""Several objects at once: files with several documents, lists, the output of `helm template`.

Rules of this file
- Objects without a pod template, such as Services, are skipped and counted by kind.
- An object with several pod templates becomes one part for each.
- Limits: `MAX_PARTS` parts, `MAX_OBJECTS` objects, lists within lists `MAX_NESTED` deep.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.wire.errors import WireError, shown
from extender.wire.templates import find_templates, only
from extender.wire.workloads import KNOWN_KINDS

MAX_PARTS: Final = 10_000
MAX_OBJECTS: Final = 10_000
MAX_NESTED: Final = 4


class BundlePart(NamedTuple):
    """An object with one pod template, and its path in the input; empty: it is the whole input."""

    document: dict[str, object]
    path: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """The parts in order, and how many objects without a pod template were skipped, by kind."""

    parts: tuple[BundlePart, ...]
    passed_over: Mapping[str, int]


def bundle_of(documents: Sequence[object]) -> Bundle:
    """The workloads in *documents*.

    Raises:
        WireError: there is none, there are too many, or a document is not an object.
    """
    parts: list[BundlePart] = []
    passed_over: Counter[str] = Counter()
    for path, document in _objects(documents):
        kind = document.get("kind") or "Pod"
        if not isinstance(kind, str) or kind in KNOWN_KINDS:
            parts.append(BundlePart(document, path))
        else:
            try:
                templates = find_templates(document)
            except WireError as error:
                raise error.below(path) from None
            parts += [BundlePart(dict(only(document, each, templates)), path) for each in templates]
            if not templates:
                passed_over[kind[:64]] += 1
        if len(parts) > MAX_PARTS:
            raise WireError("", f"more than {MAX_PARTS:,} workloads")
    if not parts:
        kinds = ", ".join(sorted(passed_over)) or "nothing"
        raise WireError("", f"there is no pod and nothing with a pod template: {kinds}")
    return Bundle(tuple(parts), dict(passed_over))


def _objects(documents: Sequence[object]) -> Iterator[tuple[str, dict[str, object]]]:
    """Every object and its path, with lists expanded."""
    single = len(documents) == 1
    stack = [("" if single else f"documents[{i}]", each, 0) for i, each in reversed(list(enumerate(documents)))]
    count = 0
    while stack:
        path, value, depth = stack.pop()
        count += 1
        if count > MAX_OBJECTS:
            raise WireError("", f"more than {MAX_OBJECTS:,} objects")
        if not isinstance(value, dict):
            raise WireError(path, f"{shown(value)} is not an object")
        items = value.get("items")
        if str(value.get("kind") or "").endswith("List") and isinstance(items, list):
            if depth >= MAX_NESTED:
                raise WireError(path, f"lists within lists more than {MAX_NESTED} deep")
            here = f"{path}.items" if path else "items"
            stack += [(f"{here}[{i}]", item, depth + 1) for i, item in reversed(list(enumerate(items)))]
        else:
            yield path, value
