"""Inputs made to hurt, for every parser that bytes from outside reach: clean errors or values, never anything else.

An input is a good document of the parser's own kind, bent: values swapped for others of any JSON type, keys renamed,
doubled or lost, numbers past every bound, parts nested deep, bytes flipped, cut, doubled. Documents of the API are made
of what their readers ask for (`kinds`). A seeded generator does it,
some thousands a second; the suite has Hypothesis bend the same documents, which shrinks what it finds.
"""

import base64
import copy
import gzip
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final

import orjson
import yaml

from extender.intake import report_facts
from extender.kube.errors import KubeError, api_error
from extender.kube.objects import parse_events
from extender.kube.reviews import Reviews
from extender.lint.documents import read_documents, read_environment
from extender.samples.nodes import Workload
from extender.wire.binding import parse_binding
from extender.wire.documents import read_documents as read_question
from extender.wire.documents import read_yaml_documents
from extender.wire.errors import WireError
from extender.wire.nrt import REPORT, counted, published_from_json, unpack_report
from extender.wire.parsing import parse_milli, parse_whole
from extender.wire.preemption import parse_preemption
from extender.wire.reports import read_heartbeat, read_report
from extender.wire.scheduler import parse_args
from extender.wire.workloads import workload_from_json
from tests.faults.kinds import made, read_by_calls, read_by_watch, seeds, sources
from tests.reports import args_of, pod_of, report_of, sample

JSON = Any
GPU: Final = "vendor.example/gpu"
NODE: Final = sample(
    workloads=[Workload(name="w", copies=2, resources={"cpu": 2, "memory": "1Gi", GPU: 1})], devices={GPU: [0, 1]}
)
POD: Final = pod_of(2, devices={GPU: 1})
EVIL: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40, 0.5, -0.0, 1e308, "", " ", "\x00",
    "0", "-1", "1e9999999", "9" * 500, "1Ei" * 3, "0-4294967295", "0-1,0-1", ",", "-", "NaN", "\ud7ff", "a" * 5000,
    "../../etc/passwd", "static", "1Gi", "5%", [], {}, [[]], [None], {"": None}, [0] * 300, {"a": {"a": {"a": []}}},
)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One parser: *parse* takes bytes, *good* makes good documents, *clean* are the errors that it may end in."""

    parse: Callable[[bytes], object]
    good: Callable[[], tuple[bytes, ...]]
    clean: tuple[type[Exception], ...] = (WireError,)

    @cached_property
    def seeds(self) -> tuple[bytes, ...]:
        """The good documents, made when they are first asked for."""
        return self.good()


def _json(parse: Callable[[Any], object]) -> Callable[[bytes], object]:
    """For parsers of decoded values: what does not decode never reaches them."""

    def run(body: bytes) -> object:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        return parse(value)

    return run


def _mapping(decode: Callable[[Mapping[str, Any]], object]) -> Callable[[bytes], object]:
    return _json(lambda value: decode(value) if isinstance(value, dict) else None)


def _dumped(documents: Iterable[object]) -> tuple[bytes, ...]:
    return tuple(orjson.dumps(document) for document in documents)


def _seed(*documents: object) -> Callable[[], tuple[bytes, ...]]:
    return partial(_dumped, documents)


def _objects(path: str) -> Callable[[], tuple[bytes, ...]]:
    return lambda: _dumped(seeds(path))


WATCH: Final = b'{"type":"ADDED","object":' + orjson.dumps({**POD, "spec": {**POD["spec"], "nodeName": "n"}}) + b"}"
VICTIMS: Final = {"n": {"Pods": [POD], "NumPDBViolations": 0}}


def _topology(value: Mapping[str, Any]) -> object:
    """As it comes from a watch, and then to its end: the carried report, or the counts."""
    published = published_from_json(value)
    if published.carried:
        return report_facts(read_report(unpack_report(published, 1 << 20)))
    return counted(published, lambda _name: "v1.36.2")


PACKED: Final = base64.b64encode(gzip.compress(orjson.dumps(report_of(NODE)), mtime=0)).decode()
ZONE: Final = {
    "name": "node-0", "type": "Node", "resources": [{"name": "cpu", "allocatable": "8", "available": "4"}],
}  # fmt: skip
TOPOLOGY: Final = {"metadata": {"name": "n"}, "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}]}
REVIEW: Final = {
    "status": {"authenticated": True, "audiences": ["a"], "user": {"username": "u", "extra": {"k": ["v"]}}}
}


def _review(value: Mapping[str, Any]) -> object:
    """A reply of the API server about a token, whatever it says."""
    reviews = Reviews(_Replies(value))
    return reviews.authenticate("token", audience="a")


@dataclass
class _Replies:
    """Stands in for a client: every call is answered with the same."""

    value: Mapping[str, Any]

    def request(
        self,
        method: str,  # noqa: ARG002 - the same for every call
        path: str,  # noqa: ARG002
        *,
        query: Mapping[str, str] | None = None,  # noqa: ARG002
        body: dict[str, Any] | None = None,  # noqa: ARG002
        content_type: str = "",  # noqa: ARG002
        timeout_seconds: float = 0.0,  # noqa: ARG002
    ) -> dict[str, Any]:
        return dict(self.value)


SCHEDULER: Final = {"kind": "KubeSchedulerConfiguration", "extenders": [{"urlPrefix": "http://x", "httpTimeout": "5s"}]}
TARGETS: Final[Mapping[str, Target]] = {
    "filter, prioritize": Target(
        parse_args, _seed(args_of(POD, "a", "b"), {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "a"}}]}})
    ),
    "bind": Target(parse_binding, _seed({"PodName": "p", "PodNamespace": "n", "PodUID": "u", "Node": "a"})),
    "preempt": Target(
        parse_preemption,
        _seed(
            {"Pod": POD, "NodeNameToVictims": VICTIMS},
            {"Pod": POD, "NodeNameToMetaVictims": {"n": {"Pods": [{"UID": "u"}]}}},
        ),
    ),
    "report": Target(lambda body: report_facts(read_report(body)), _seed(report_of(NODE))),
    "heartbeat": Target(read_heartbeat, _seed({"boot_id": "b", "sequence": 1, "digest": "d" * 64, "observed_at": 1.0})),
    "workload": Target(
        _json(workload_from_json),
        _seed(POD, {"kind": "Deployment", "spec": {"template": {"spec": POD["spec"]}}}),
    ),
    "question in YAML": Target(read_yaml_documents, lambda: (yaml.safe_dump(POD).encode(), b"a: &x [1]\nb: *x\n")),
    "question in JSON": Target(lambda body: read_question(body, "application/json"), _seed(POD)),
    "lint documents": Target(
        lambda body: read_documents(body, "f"), lambda: (yaml.safe_dump(SCHEDULER).encode(), b"a: 1\n---\nb: 2\n")
    ),
    "lint environment": Target(lambda body: read_environment(body, "f"), lambda: (b"A=1\nB='x y'\n# c\n",)),
    "quantity": Target(
        _json(lambda value: (parse_milli(value, "f"), parse_whole(value, "f"))), _seed("100m", "1Gi", "1e3", 4, "0.5")
    ),
    "watch": Target(
        lambda body: list(parse_events(body.split(b"\n"))), lambda: (WATCH, WATCH + b"\n" + WATCH), (KubeError,)
    ),
    "pod of a call": Target(
        _json(read_by_calls), lambda: _dumped([orjson.loads(WATCH)["object"], *made("pod-v1", 100)]), ()
    ),
    **{f"watch of {path}": Target(read_by_watch(path), _objects(path), ()) for path in sources()},
    "topology object": Target(
        _mapping(_topology),
        _seed(
            {**TOPOLOGY, "zones": [ZONE]},
            {**TOPOLOGY, "zones": [], "metadata": {"name": "n", "annotations": {REPORT: PACKED}}},
        ),
    ),
    "token review": Target(_mapping(_review), _seed(REVIEW), ()),
    "error of the API server": Target(
        lambda body: api_error(500, body, body[:20].decode("latin-1")),
        _seed({"kind": "Status", "code": 409, "reason": "Conflict", "details": {"causes": [{"reason": "x"}]}}),
        (),
    ),
}


@dataclass
class Tally:
    """What came of the inputs: by target, how many were taken, refused cleanly, or ended otherwise (`broken`)."""

    taken: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    slowest: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.taken.total() + self.refused.total() + len(self.broken)


def bend(seed: bytes, chance: random.Random) -> bytes:
    """One hostile relative of a good document."""
    if chance.random() < 0.75:
        try:
            document = orjson.loads(seed)
        except orjson.JSONDecodeError:
            return bend_bytes(seed, chance)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            document = bend_value(document, chance)
        try:
            seed = orjson.dumps(document, default=str)
        except (orjson.JSONEncodeError, TypeError):
            seed = repr(document).encode(errors="replace")
        if chance.random() < 0.9:
            return seed
    return bend_bytes(seed, chance)


def bend_value(document: JSON, chance: random.Random) -> JSON:
    """The document with one place in it changed."""
    document = copy.deepcopy(document)
    parent: JSON = None
    key: JSON = None
    place = document
    while isinstance(place, dict | list) and place and chance.random() < 0.85:
        parent = place
        key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        place = place[key]
    if parent is None:
        return chance.choice(EVIL)
    match chance.randrange(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, dict):
            parent[str(chance.choice(EVIL))[:50]] = parent.pop(key)
        case 2 if isinstance(parent, list):
            parent.extend([place] * chance.choice((1, 50)))
        case 3:
            for _ in range(chance.choice((1, 30))):
                place = [place] if chance.random() < 0.5 else {"a": place}
            parent[key] = place
        case _:
            parent[key] = chance.choice(EVIL)
    return document


def bend_bytes(body: bytes, chance: random.Random) -> bytes:
    """The bytes with some of them flipped, cut out, doubled, or replaced by what parsers trip over."""
    changed = bytearray(body)
    for _ in range(chance.choice((1, 2, 8))):
        at = chance.randrange(len(changed) + 1)
        match chance.randrange(5):
            case 0:
                changed[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del changed[at : at + chance.choice((1, 5, 1000))]
            case 2:
                changed[at:at] = changed[at : at + chance.choice((1, 20, 200))]
            case 3:
                changed[at:at] = chance.choice(
                    (b"[" * 200, b"\xff", b"\x00", b"\xed\xa0\x80", b"1e999", b"- ", b": ", b"&a *a")
                )
            case _:
                changed[at:] = b""
    return bytes(changed)


def try_one(name: str, body: bytes, tally: Tally) -> None:
    """Parse, and note what came of it."""
    target = TARGETS[name]
    started = time.perf_counter()
    try:
        target.parse(body)
        tally.taken[name] += 1
    except target.clean:
        tally.refused[name] += 1
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        tally.broken.append(f"{name}: {type(error).__name__}: {error!s:.200} input={body[:300]!r}")
    tally.slowest[name] = max(tally.slowest.get(name, 0.0), time.perf_counter() - started)


def hail(count: int, seed: int, tally: Tally | None = None) -> Tally:
    """*count* inputs over all parsers alike. The same seed makes the same inputs."""
    chance, tally = random.Random(seed), tally or Tally()
    names = sorted(TARGETS)
    for index in range(count):
        name = names[index % len(names)]
        try_one(name, bend(chance.choice(TARGETS[name].seeds), chance), tally)
    return tally
