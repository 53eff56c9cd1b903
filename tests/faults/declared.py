"""Objects of the API made of the fields that our readers ask for, with types from the API's own schema.

No list of fields is kept here. A document with every field of the schema is read by the readers, and says what it was
asked for (`asked_by`); documents are made of that (`Maker`). A reader that asks for one more field gets it from the
next run on. Fields that no schema has, such as those of older versions of the API, are made of anything.

Keys of annotations and labels are the texts of that form in the readers' modules.
"""

import contextlib
import copy
import importlib
import inspect
import pkgutil
import random
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, Final

from kubernetes_validate.utils import schema_contents  # type: ignore[import-untyped]

import extender.kube
import extender.kubelet
import extender.nri
import extender.replay
import extender.wire

JSON = Any
Path = tuple[str, ...]
"""Names of fields; `[]` stands for every element of a list, `*` for every key of a map."""
VERSION: Final = "1.37.0"
_DIRECTORY: Final = f"kubernetes-json-schema/v{VERSION}-local"
_KEY: Final = re.compile(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9.-]+")
MAX_GROWN: Final = 60
"""Fields of a document of a kind without schema: a reader that looks for structure asks every object for more."""
QUANTITIES: Final = (
    "1", "2", "100m", "250m", "1500m", "0", "1Gi", "64Mi", "1e3", "0.1", "3", "16", "1Ti", "9007199254740993",
    "9223372036854775807", "1n", "12345678901234567890",
)  # fmt: skip
TEXTS: Final = (
    "", "a", "app", "c0", "c1", "Exists", "Equal", "In", "NotIn", "Gt", "Always", "NoSchedule", "Guaranteed",
    "Burstable", "true", "false", "single-numa-node", "restricted", "container", "pod", "0-3", "node-0", "x" * 63,
    "a.b/c", "é",
    "2026-01-01T00:00:00Z", "system-node-critical", "topology-aware", "CreateContainerError", "Pod was rejected: no",
    "Failed", "Running", "Pending", "Succeeded", "UnexpectedAdmissionError", "NodeAffinity", "99", "-1",
    "\u202e\x1b[2J",
)  # fmt: skip
RESOURCES: Final = (
    "cpu", "memory", "hugepages-2Mi", "hugepages-1Gi", "ephemeral-storage", "vendor.example/gpu", "pods",
)  # fmt: skip


class Asked(dict[str, Any]):
    """An object of a document that notes which of its fields are asked for."""

    def __init__(self, value: Mapping[str, Any], path: Path, seen: set[Path]) -> None:
        super().__init__({key: _noting(each, (*path, key), seen) for key, each in value.items()})
        self._path, self._seen = path, seen

    def get(self, key: str, default: object = None) -> object:
        self._seen.add((*self._path, key))
        return super().get(key, default)

    def __getitem__(self, key: str) -> object:
        self._seen.add((*self._path, key))
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._seen.add((*self._path, str(key)))
        return super().__contains__(key)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._seen.add((*self._path, "*"))
        return super().items()

    def __iter__(self) -> Iterator[str]:
        self._seen.add((*self._path, "*"))
        return super().__iter__()


def _noting(value: JSON, path: Path, seen: set[Path]) -> JSON:
    if isinstance(value, dict):
        return Asked(value, path, seen)
    return [_noting(each, (*path, "[]"), seen) for each in value] if isinstance(value, list) else value


def asked_by(readers: Iterable[Callable[[Any], object]], schema: str) -> frozenset[Path]:
    """The paths that the readers ask documents of this schema for: a whole one, and many with some of the fields."""
    maker = Maker(schema, None, random.Random(1))
    documents = [maker.whole(), *(maker.make() for _ in range(60))]
    return frozenset().union(*(asked_paths(reader, document) for reader in readers for document in documents))


def grown(reader: Callable[[Any], object]) -> JSON:
    """A document of a kind without schema: what the reader asks for, of the types with which it asks for most."""
    document: JSON = {"metadata": {"name": "n", "namespace": "n", "uid": "u"}}
    fields = 0
    for _ in range(8):
        before = asked_paths(reader, document)
        missing = [path for path in sorted(before, key=lambda each: (len(each), each)) if path[-1] != "*"]
        missing = [path for path in missing if _at(document, path) is None][: MAX_GROWN - fields]
        fields += len(missing)
        for path in missing:
            parent = _at(document, path[:-1])
            if isinstance(parent, dict):
                found = {}
                for number, value in enumerate(({}, [{}], 3, "a")):
                    parent[path[-1]] = value
                    found[len(asked_paths(reader, document)), -number] = value
                parent[path[-1]] = copy.deepcopy(found[max(found)]) if max(found)[0] > len(before) else 3
        if not missing:
            break
    return document


def asked_paths(reader: Callable[[Any], object], document: JSON) -> set[Path]:
    """The paths that the reader asks this document for."""
    seen: set[Path] = set()
    with contextlib.suppress(Exception):  # what it has asked for until then counts
        reader(_noting(document, (), seen))
    return seen


def _at(document: JSON, path: Path) -> JSON:
    for name in path:
        if name == "[]":
            document = document[0] if isinstance(document, list) and document else None
        else:
            document = document.get(name) if isinstance(document, dict) else None
    return document


@cache
def _definitions() -> Mapping[str, Any]:
    found: Mapping[str, Any] = schema_contents(f"{_DIRECTORY}/_definitions.json", VERSION)["$defs"]
    return found


@cache
def schema_of(name: str) -> Mapping[str, Any]:
    """The schema in a file such as `pod-v1`."""
    found: Mapping[str, Any] = schema_contents(f"{_DIRECTORY}/{name}.json", VERSION)
    return found


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in schema:
        schema = _definitions()[schema["$ref"].rpartition("/")[2]]
    return schema


def _type(schema: Mapping[str, Any]) -> str:
    if "oneOf" in schema:
        return "quantity" if len(schema["oneOf"]) == 2 and "string" in str(schema["oneOf"][0]) else "any"
    found = schema.get("type", "any")
    return str(found[0] if isinstance(found, list) else found)


@cache
def known_keys() -> tuple[str, ...]:
    """The keys of annotations and labels in the modules of the readers."""
    found: set[str] = set()
    for package in (extender.wire, extender.kube, extender.kubelet, extender.nri, extender.replay):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(importlib.import_module(module.name)).values():
                found.update(text for text in _texts(value) if _KEY.fullmatch(text))
    return tuple(sorted(found))


@cache
def known_names() -> tuple[str, ...]:
    """The short names in tables of the NRI policy's annotations, with its domain."""
    module = importlib.import_module("extender.wire.nri_annotations")
    names = {text for value in vars(module).values() if isinstance(value, dict) for text in _texts(value)}
    return tuple(sorted(f"{name}.resource-policy.nri.io" for name in names if re.fullmatch(r"[a-z]+(-[a-z]+)+", name)))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | AbstractSet | tuple) and not inspect.isclass(value):
        for each in value:
            yield from _texts(each)


class Maker:
    """Makes documents of one kind. *asked* None: of every field of the schema."""

    def __init__(self, schema: str, asked: AbstractSet[Path] | None, chance: random.Random) -> None:
        self._schema, self._chance = schema_of(schema), chance
        self._asked, self._texts = asked, 0
        self._inner = None if asked is None else {path[:i] for path in asked for i in range(len(path))}

    def whole(self) -> JSON:
        """Every field once, every list with one element, every map with the keys that we know."""
        return self._whole(self._schema, (), 12)

    def make(self) -> JSON:
        """A document with some of the fields."""
        made = self._value(self._schema, ())
        assert isinstance(made, dict)
        unknown = {path for path in self._asked or () if path and path[-1] not in ("*", "[]")}
        for path in sorted(unknown):
            self._add_unknown(made, path)
        return made

    def _whole(self, schema: Mapping[str, Any], path: Path, depth: int) -> JSON:
        schema = _resolved(schema)
        kind = _type(schema)
        if kind == "object" and depth:
            made = {
                name: self._whole(each, (*path, name), depth - 1)
                for name, each in schema.get("properties", {}).items()
                if self._is_asked((*path, name))
            }
            if isinstance(more := schema.get("additionalProperties"), dict):
                made |= {key: self._whole(more, (*path, key), depth - 1) for key in (*known_keys(), *RESOURCES)}
            return made
        if kind == "array":
            return [self._whole(schema["items"], (*path, "[]"), depth - 1)] if depth else []
        if kind == "string":
            self._texts += 1
            return f"text-{self._texts}"  # names that must differ do
        return {"quantity": "1", "integer": 1, "number": 1, "boolean": True}.get(kind)

    def _is_asked(self, path: Path) -> bool:
        """Whether a reader asks for it, or takes the whole of what it is in."""
        if self._asked is None or self._inner is None or path in self._asked or path in self._inner:
            return True
        parent = path[:-1]
        return parent in self._asked and not any(
            other[: len(parent)] == parent and len(other) > len(parent) for other in self._asked
        )

    def _value(self, schema: Mapping[str, Any], path: Path) -> JSON:
        schema, chance = _resolved(schema), self._chance
        match _type(schema):
            case "object":
                required = schema.get("required", ())
                made = {
                    name: self._value(each, (*path, name))
                    for name, each in schema.get("properties", {}).items()
                    if name in required or (chance.random() < 0.6 and self._is_asked((*path, name)))
                }
                if isinstance(more := schema.get("additionalProperties"), dict):
                    made |= {key: self._entry(more, key, (*path, key)) for key in self._keys(more)}
                return made
            case "array":
                count = chance.choice((0, 1, 1, 1, 2, 3)) if chance.random() < 0.98 else 40
                return [self._value(schema["items"], (*path, "[]")) for _ in range(count)]
            case "quantity":
                return chance.choice(QUANTITIES)
            case "string":
                if enum := [each for each in schema.get("enum", ()) if each is not None]:
                    return chance.choice(enum)
                if schema.get("format") == "date-time":
                    return "2026-11-23T12:00:00Z"
                return chance.choice(TEXTS)
            case "integer" | "number":
                most = 2**31 - 1 if schema.get("format") == "int32" else 2**63 - 1
                return chance.choice((0, 1, 2, 5, 1000, most, -1))
            case "boolean":
                return chance.random() < 0.5
        return None

    def _keys(self, of: Mapping[str, Any]) -> list[str]:
        chance = self._chance
        if _type(_resolved(of)) == "quantity":
            return chance.sample(RESOURCES, chance.randrange(4))
        names = [f"{name}/{chance.choice(('pod', 'container.app', 'container.c0'))}" for name in known_names()]
        keys = (*known_keys(), *names, "a", "kind", "kubernetes.io/hostname")
        return chance.sample(keys, chance.choice((0, 1, 2, 4, 12)))

    def _entry(self, schema: Mapping[str, Any], key: str, path: Path) -> JSON:
        if _type(_resolved(schema)) == "string" and path[-2:-1] == ("annotations",):
            return annotation(self._chance, key)
        return self._value(schema, path)

    def _add_unknown(self, document: JSON, path: Path) -> None:
        """Anything at a path of which the schema knows nothing, if its parent is there."""
        document = _at(document, path[:-1])
        chance = self._chance
        if not isinstance(document, dict) or path[-2:-1] in (("labels",), ("annotations",)) or path[-1] in document:
            return
        if path not in _paths_of(id(self._schema), self._schema) and chance.random() < 0.3:
            text = chance.choice(TEXTS)
            document[path[-1]] = chance.choice((text, 1, {"name": text, "podGroup": text}, [text], [{"name": text}]))


def placed(document: JSON, path: Path, value: JSON) -> JSON:
    """*document* with *value* at the path, if there is such a place. What the path does not touch is shared."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(document, list):
        return [placed(document[0] if document else None, rest, value), *document[1:]] if first == "[]" else document
    if not isinstance(document, dict):
        return document
    keys = list(document)[:3] or ["a"] if first == "*" else [first]
    return {**document, **{key: placed(document.get(key), rest, value) for key in keys}}


_PATHS: dict[int, set[Path]] = {}


def _paths_of(key: int, schema: Mapping[str, Any]) -> set[Path]:
    """Every path that the schema has."""
    if key not in _PATHS:
        found: set[Path] = set()
        _collect(schema, (), found, 12)
        _PATHS[key] = found
    return _PATHS[key]


def _collect(schema: Mapping[str, Any], path: Path, found: set[Path], depth: int) -> None:
    schema = _resolved(schema)
    found.add(path)
    if depth and _type(schema) == "object":
        for name, each in schema.get("properties", {}).items():
            _collect(each, (*path, name), found, depth - 1)
    elif depth and _type(schema) == "array":
        _collect(schema["items"], (*path, "[]"), found, depth - 1)


def annotation(chance: random.Random, key: str) -> str:
    """A value for an annotation: one that may be meant, or one that is slow, large or deep to read."""
    number = chance.randrange(10**6)
    size = chance.choice((1, 30, 1000, 16_000))
    match chance.randrange(9):
        case 0:
            return f"[{number}{',{0}' * (size // 4)}]"
        case 1:
            return f"[{number}{',0' * (size // 2)}]"
        case 2:
            return "{a: " * min(size // 4, 900) + str(number) + "}" * min(size // 4, 900)
        case 3:
            expression = {"key": ":,," + "labels/a," * (size // 90), "operator": "Matches"}
            pattern = "*" + "a*" * (size // 3)
            return f'app: [{{match: {{key: "{expression["key"]}", operator: Matches, values: ["{pattern}{number}"]}}}}]'
        case 4:
            return f"a: &x [{number}{',0' * (size // 20)}]\nb: [{'*x,' * (size // 10)}]"
        case 5:
            return chance.choice(TEXTS) * (1 + size // 100)
        case 6 if "group-size" in key or "size" in key:
            return str(chance.choice((1, 2, 3, 100, 256, 10**6)))
        case 7:
            return f"group-{chance.randrange(3)}"
        case _:
            return chance.choice(("true", "false", "0-3", "{}", "[]", "single-numa-node", "aligned", str(number)))
