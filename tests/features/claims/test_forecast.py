"""Predictions against the allocator on the whole cluster, and against what the real one allocated."""

import gc
import lzma
import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from weakref import ref

import orjson
import pytest

from extender.conformance.dra_scenario import DraWorld, ExtendedCase, scenario_from_json
from extender.dra.cel import match, selector
from extender.dra.objects import AllocatedDevice, DeviceClass, DraNode, ResourceClaim
from extender.dra.pools import SliceIndex
from extender.dra.replay import ALLOCATED, ClusterDevices, allocate
from extender.dra.requests import AllocatedState
from extender.dra.rules import rules_for
from extender.features.claims.asks import MAX_STEPS, asks_of
from extender.features.claims.call_forecast import MAX_UNKNOWN, CallForecast, NodeJudge, SearchLimits
from extender.features.claims.feed import (
    MAX_ASKED,
    AllocatedClaim,
    decode_claim,
    decode_class,
    decode_slice,
    decode_template,
)
from extender.features.claims.forecast import MAX_FLIGHTS, Forecasts
from extender.features.claims.objects import RELEASE_SECONDS, ClaimObjects
from extender.features.claims.questions import QuestionForecast
from extender.features.claims.refusal import PredictedRefusal
from extender.questions.node_context import NOTHING_KNOWN, DynamicDevice, NodeContext, for_extended
from extender.replay.pod import Pod
from extender.scheduling.reasons import RefusalReason
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

Json = dict[str, Any]
VECTORS = Path(__file__).parents[2] / "vectors/dra/dra-1.36.jsonl.xz"
VERSION = "1.36.2"
DRIVER = "gpu.example.com"
WANTED = "example.com/gpu"
SHAPES = ((1, "true"), (2, "true"), (1, "device.attributes['gpu.example.com'].large"))
"""How many devices a claim asks for, and which."""
Ids = Sequence[Sequence[tuple[str, str, str]]]


def forecasts_with(*objects: Json, gates: str = "") -> tuple[Forecasts, list[str], list[float]]:
    """Predictions from these objects, their results, and the clock."""
    now, results = [0.0], list[str]()
    found = Forecasts(ClaimObjects(rules_for(VERSION, gates), lambda: now[0]), results.append)
    found.is_complete = found.objects.complete = True
    for each in objects:
        put(found.objects, each)
    return found, results, now


def put(objects: ClaimObjects, document: Json) -> None:
    """As the watch does."""
    entry: Any
    if "deviceClassName" in str(document) or "status" in document:
        entry = decode_claim(document)
        objects.set_claim(f"{document['metadata'].get('namespace', '')}/{document['metadata']['name']}", entry[1])
    elif "pool" in document["spec"]:
        entry = decode_slice(document)
        objects.set_slice(*entry)
    else:
        entry = decode_class(document)
        objects.set_class(*entry)


def possible(call: CallForecast, *nodes: DraNode) -> list[list[Ids] | None]:
    """The devices of each claim on each node, in each possible outcome; None: not known."""
    labels = {node.name: NodeContext(labels=node.labels) for node in nodes}
    limits = SearchLimits(labels.__getitem__, lambda: False)
    call.judged([*labels], [0] * len(nodes), NodeJudge("", lambda _, devices: len(devices), len), limits)
    found = map(call.predicted, labels)
    return [
        None if each is None else [[[d.id for d in devices] for devices in given] for given in each] for each in found
    ]


def worlds() -> Iterator[tuple[Json, DraWorld]]:
    with lzma.open(VECTORS) as lines:
        some = Random(1).sample(lines.readlines(), 300)
    for document in map(orjson.loads, some):
        scenario = scenario_from_json(document)
        if isinstance(scenario, DraWorld) and isinstance(scenario.gates, str):
            yield document, scenario


def test_predictions_are_what_the_real_allocator_allocated() -> None:
    """Objects come in any order, and some change before they are what they are."""
    random, known, total = Random(2), 0, 0
    for document, world in worlds():
        objects = [each for key in ("resourceSlices", "resourceClaims", "deviceClasses") for each in document[key]]
        slices = [each for each in objects if "pool" in each["spec"]]
        others = [each for each in objects if "pool" not in each["spec"]]
        random.shuffle(others)
        gates = world.gates if isinstance(world.gates, str) else ""
        forecasts, _, _ = forecasts_with(*slices, *others, gates=gates)
        pod = Pod(uid="u", name="p", namespace="n", containers=(), claims=tuple(each.name for each in world.allocate))
        call = forecasts.call(pod)
        for node, recorded in zip(world.nodes, world.recorded[VERSION], strict=True):
            total += recorded["verdict"] != "error"
            (found,) = [None] if call is None else possible(call, node)
            if found is None:
                continue
            known += 1
            names, given = ("driver", "pool", "device"), recorded.get("allocations", [])
            expected = [[tuple(d[key] for key in names) for d in each["devices"].get("results", [])] for each in given]
            assert (expected in found) if recorded["verdict"] == ALLOCATED else found == [], document["id"]
            assert len(found) <= 1 or len({str(each) for each in found}) > 1
    assert known >= 0.9 * total > 0


def slice_of(node: str, random: Random) -> Json:
    numbers = range(random.randint(1, 4))
    devices = [{"name": f"gpu-{i}", "attributes": {"large": {"bool": random.random() < 0.4}}} for i in numbers]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"slice-{node}"}, "spec": spec}


def claim_of(name: str, shape: int, allocation: object = None) -> Json:
    number, expression = SHAPES[shape]
    selectors = [{"cel": {"expression": expression}}]
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": number, "selectors": selectors}
    return {
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {} if allocation is None else {"allocation": allocation},
    }


class Scheduler:
    """A model of kube-scheduler: it knows each allocation at once, and writes it later."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.nodes = [DraNode(f"node-{i}", {}) for i in range(3)]
        self.slices = [slice_of(node.name, self.random) for node in self.nodes]
        self.device_class = {"metadata": {"name": "gpu"}, "spec": {}}
        self.forecasts, self.results, self.now = forecasts_with(*self.slices, self.device_class)
        self.held: dict[str, ResourceClaim] = {}
        self.unwritten: dict[str, tuple[Json, Pod, str]] = {}

    def allocated(self, claim: ResourceClaim, node: DraNode) -> Json | None:
        """What it would write on the node; None: the node does not fit."""
        rules = rules_for(VERSION)
        exact = [entry[1].exact for each in self.slices if (entry := decode_slice(each)) is not None]
        index = SliceIndex([each for each in exact if each is not None], rules)
        classes = dict(filter(None, [decode_class(self.device_class)]))
        held = AllocatedState(list(self.held.values()), rules)
        cluster = ClusterDevices(index, classes, held, partial(match, with_lists=False), rules)
        (answer,) = allocate(cluster, node, [claim])
        return answer.allocations[0] if answer.verdict == ALLOCATED else None

    def schedule(self, number: int) -> None:
        """Filter, and Reserve on one of the nodes that fit. What is allocated must be among what was predicted."""
        name, shape = f"claim-{number}", self.random.randrange(len(SHAPES))
        put(self.forecasts.objects, claim_of(name, shape))
        pod = Pod(uid=name, name=name, namespace="n", containers=(), claims=(f"n/{name}",))
        call = self.forecasts.call(pod)
        assert call is not None
        fits = []
        for node, found in zip(self.nodes, possible(call, *self.nodes), strict=True):
            truth = self.allocated(read(claim_of(name, shape)).exact, node)
            if found is not None and not call.is_open(node.name):
                ids = None if truth is None else [list(read(claim_of(name, shape, truth)).devices)]
                assert ids in found if truth else not found or self.unwritten or self.releasing
                assert len(found) <= 1 or self.unwritten or self.releasing, "nothing is in flight: one is possible"
            fits += [] if truth is None else [(node, truth)]
        self.forecasts.passed(pod, call, [node.name for node, _ in fits])
        if fits:
            node, truth = self.random.choice(fits)
            written = claim_of(name, shape, truth)
            self.held[name] = read(written).exact
            self.unwritten[name] = written, pod, node.name

    @property
    def releasing(self) -> bool:
        return any(True for _ in self.forecasts.objects.released(self.now[0]))

    def write(self) -> None:
        """PreBind of one pod, and its bind call."""
        name = self.random.choice(list(self.unwritten))
        written, pod, node = self.unwritten.pop(name)
        put(self.forecasts.objects, written)
        self.forecasts.bind(pod, node)

    def release(self) -> None:
        """A pod ends. kube-scheduler sees it at once, or a moment after us."""
        name = self.random.choice([each for each in self.held if each not in self.unwritten])
        self.forecasts.objects.set_claim(f"n/{name}", read(claim_of(name, 0)))
        self.forecasts.objects.set_claim(f"n/{name}", None)
        del self.held[name]
        self.now[0] += self.random.choice((0, 2 * RELEASE_SECONDS))


def read(document: Json) -> AllocatedClaim:
    found = decode_claim(document)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("seed", range(25))
def test_what_is_allocated_is_among_what_was_predicted(seed: int) -> None:
    """And it is the only thing that was predicted, if nothing was in flight."""
    scheduler = Scheduler(seed)
    for number in range(40):
        scheduler.schedule(number)
        while scheduler.unwritten and scheduler.random.random() < 0.6:
            scheduler.write()
        while len(scheduler.held) > len(scheduler.unwritten) and scheduler.random.random() < 0.4:
            scheduler.release()
    assert set(scheduler.results) <= {"agrees", "not_known"}
    assert scheduler.results.count("agrees") >= 5


def test_the_search_for_a_claim_is_given_up() -> None:
    """10 devices and four claims that cannot be met cost more than `MAX_STEPS` on each node."""
    nodes = [DraNode(f"node-{i}", {}) for i in range(MAX_UNKNOWN + 20)]
    slices = []
    for node in nodes:
        document = slice_of(node.name, Random(1))
        document["spec"]["devices"] = [{"name": f"gpu-{i}"} for i in range(12)]
        slices.append(document)
    claims = [claim_of(f"bomb-{i}", 1) for i in range(7)]
    forecasts, _, _ = forecasts_with(*slices, {"metadata": {"name": "gpu"}, "spec": {}}, *claims)
    pod = Pod(uid="u", name="p", namespace="n", containers=(), claims=tuple(f"n/bomb-{i}" for i in range(7)))
    call = forecasts.call(pod)
    assert call is not None
    assert not any(possible(call, *nodes))
    assert forecasts.kept.unknown[call.asks.key] == MAX_UNKNOWN + 1

    put(forecasts.objects, claim_of("other", 0))
    other = forecasts.call(Pod(uid="o", name="o", namespace="n", containers=(), claims=("n/other",)))
    assert other is not None
    assert all(possible(other, *nodes)), "others are not affected"


def test_a_pod_whose_claims_ask_for_too_much_is_not_predicted_for() -> None:
    """Seen red: a claim of a megabyte took 20 s to compile, and was kept as a part of keys, as often as it differed."""
    node = slice_of("node-a", Random(1))
    forecasts, _, _ = forecasts_with(node, {"metadata": {"name": "gpu"}, "spec": {}})
    for name, length in (("long", MAX_ASKED + 1), ("a", MAX_ASKED // 2), ("b", MAX_ASKED // 2)):
        document = claim_of(name, 0)
        (request,) = document["spec"]["devices"]["requests"]
        texts = [f"size('{'x' * 1000}') > {i}" for i in range(length // 1000)]
        request["exactly"]["selectors"] = [{"cel": {"expression": each}} for each in texts]
        put(forecasts.objects, document)

    def call(*names: str) -> CallForecast | None:
        return forecasts.call(Pod(uid="u", name="p", namespace="n", containers=(), claims=names))

    assert call("n/a") is not None
    assert call("n/long") is None
    assert call("n/a", "n/b") is None
    assert all(len(str(key)) < 100 for key in forecasts._subjects)


def test_few_compiled_selectors_are_kept() -> None:
    """Seen red: 1,024 of them took 580 MB."""
    kept = [ref(selector(f"{number} < 200 && device.driver != ''").evaluate) for number in range(100)]
    gc.collect()

    assert sum(each() is not None for each in kept) <= 64


def test_a_slice_that_cannot_be_read_hides_its_own_node_alone() -> None:
    nodes = [DraNode(name, {}) for name in ("node-a", "node-b")]
    slices = [slice_of(node.name, Random(1)) for node in nodes]
    slices[0]["spec"]["devices"] = [{"name": f"gpu-{i}", "attributes": {"a": {"int": "x"}}} for i in range(10_000)]
    forecasts, _, _ = forecasts_with(*slices, {"metadata": {"name": "gpu"}, "spec": {}}, claim_of("c", 0))
    call = forecasts.call(Pod(uid="u", name="p", namespace="n", containers=(), claims=("n/c",)))
    assert call is not None
    first, second = possible(call, *nodes)
    assert first is None
    assert second


def test_a_node_with_too_many_devices_is_not_known() -> None:
    document = slice_of("node-a", Random(1))
    document["spec"]["devices"] = [{"name": f"gpu-{i}"} for i in range(MAX_STEPS + 1)]
    other = slice_of("node-b", Random(1))
    forecasts, _, _ = forecasts_with(document, other, {"metadata": {"name": "gpu"}, "spec": {}}, claim_of("c", 0))
    call = forecasts.call(Pod(uid="u", name="p", namespace="n", containers=(), claims=("n/c",)))
    assert call is not None
    first, second = possible(call, DraNode("node-a", {}), DraNode("node-b", {}))
    assert first is None
    assert second


def test_three_pods_in_flight_are_all_counted() -> None:
    """They can have none, one, two or three of the four devices, and no device twice."""
    document = slice_of("node-a", Random(1))
    document["spec"]["devices"] = [{"name": f"gpu-{i}"} for i in range(4)]
    claims = [claim_of(f"c-{i}", 0) for i in range(5)]
    forecasts, _, _ = forecasts_with(document, {"metadata": {"name": "gpu"}, "spec": {}}, *claims)
    node = DraNode("node-a", {})
    found: list[Ids] | None = None
    for i in range(5):
        pod = Pod(uid=f"{i}", name="p", namespace="n", containers=(), claims=(f"n/c-{i}",))
        call = forecasts.call(pod)
        assert call is not None
        (now,) = possible(call, node)
        assert call.is_open("node-a") is (i == 4), "four are too many"
        found = found if now is None or i == 4 else now
        forecasts.passed(pod, call, ["node-a"])
    assert sorted(ids[0][0][2] for ids in found or ()) == [f"gpu-{i}" for i in (0, 0, 0, 0, 1, 1, 2, 3)]


def test_more_pods_in_flight_than_are_kept_make_every_node_uncertain() -> None:
    names = range(MAX_FLIGHTS + 1)
    claims = [claim_of(f"c-{i}", 0) for i in names]
    forecasts, _, _ = forecasts_with(slice_of("node-a", Random(1)), {"metadata": {"name": "gpu"}, "spec": {}}, *claims)
    for i in names:
        pod = Pod(uid=f"{i}", name="p", namespace="n", containers=(), claims=(f"n/c-{i}",))
        call = forecasts.call(pod)
        assert call is not None
        assert call.is_open("node-b") is (i == MAX_FLIGHTS)
        forecasts.passed(pod, call, ["node-a"])


def test_a_class_that_can_be_read_again_ends_the_giving_up() -> None:
    nodes = [DraNode(f"node-{i}", {}) for i in range(MAX_UNKNOWN + 5)]
    slices = [slice_of(node.name, Random(1)) for node in nodes]
    unread = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "'a'.format([]) == ''"}}]}}
    forecasts, _, _ = forecasts_with(*slices, unread, claim_of("c", 0))
    pod = Pod(uid="u", name="p", namespace="n", containers=(), claims=("n/c",))
    for _ in range(2):
        call = forecasts.call(pod)
        assert call is not None
        assert not any(possible(call, *nodes))
    put(forecasts.objects, {"metadata": {"name": "gpu"}, "spec": {}})
    call = forecasts.call(pod)
    assert call is not None
    assert all(possible(call, *nodes))


def test_only_nodes_that_have_changed_are_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for another pod whose claim asks for the same."""
    searched: list[str] = []

    def counted(cluster: ClusterDevices, node: DraNode, claims: Sequence[ResourceClaim], steps: int) -> object:
        searched.append(node.name)
        return allocate(cluster, node, claims, steps)

    monkeypatch.setattr("extender.features.claims.asks.allocate", counted)
    nodes = [DraNode(f"node-{i}", {}) for i in range(6)]
    slices = [slice_of(node.name, Random(1)) for node in nodes]
    forecasts, _, now = forecasts_with(*slices, {"metadata": {"name": "gpu"}, "spec": {}})

    def ask(number: int) -> list[str]:
        put(forecasts.objects, claim_of(f"c-{number}", 0))
        call = forecasts.call(Pod(uid=f"{number}", name="p", namespace="n", containers=(), claims=(f"n/c-{number}",)))
        assert call is not None
        searched.clear()
        assert all(possible(call, *nodes))
        return searched

    assert len(ask(0)) == len(nodes)
    assert ask(1) == []
    results = [{"driver": DRIVER, "pool": "node-3", "device": "gpu-0"}]
    put(forecasts.objects, claim_of("c-0", 0, {"devices": {"results": results}}))
    assert ask(2) == ["node-3"]
    put(forecasts.objects, claim_of("c-0", 0))
    now[0] += 2 * RELEASE_SECONDS
    assert ask(3) == ["node-3"]
    put(forecasts.objects, {"metadata": {"name": "gpu"}, "spec": {}})
    assert len(ask(4)) == len(nodes)


def test_another_thread_may_empty_what_is_kept_of_a_node() -> None:
    gpu = {"metadata": {"name": "gpu"}, "spec": {}}
    forecasts, _, _ = forecasts_with(slice_of("n0", Random(1)), gpu, claim_of("c", 0))
    pod = Pod(uid="u", name="p", namespace="n", containers=(), claims=("n/c",))
    judge, limits = NodeJudge("", lambda _, devices: len(devices), len), SearchLimits(lambda _: NOTHING_KNOWN, bool)
    call = forecasts.call(pod)
    assert call is not None
    before = call.judged(["n0"], [0], judge, limits)
    (known,) = forecasts.kept.nodes.values()
    known.answers, known.judged = Emptied(), Emptied()
    call = forecasts.call(pod)
    assert call is not None
    assert call.judged(["n0"], [1], judge, limits) == before != [None]


class Emptied(dict[Any, Any]):
    """Another thread empties it after each change."""

    def __setitem__(self, key: object, value: object) -> None:
        """Keep nothing."""


def test_a_worker_process_predicts_the_same() -> None:
    """What it gets is copied to it. Slices that are not local to the node leave its answer open."""
    document = slice_of("node-a", Random(3))
    gpu = {"metadata": {"name": "gpu"}, "spec": {}}
    forecasts, _, _ = forecasts_with(document, gpu, *(claim_of(f"c-{shape}", shape) for shape in range(len(SHAPES))))
    objects, number = forecasts.objects, 0
    sent = pickle.loads(pickle.dumps((QuestionForecast.of(objects), objects.claims_on("node-a"))))
    around = NodeContext(devices=objects.devices_on("node-a"), claims=sent[1])
    for shape in range(len(SHAPES)):
        pod = Pod(uid="u", name="p", namespace="n", containers=(), claims=(f"n/c-{shape}",))
        call = forecasts.call(pod)
        assert call is not None
        (answer,) = possible(call, DraNode("node-a", {}))
        taken = sent[0].take(pod, "node-a", around)
        found = None if taken is None else [each.key for each in taken.devices if each.is_predicted]
        assert found == (answer[0][0] if answer else None)
        number += found is not None
    assert number > 1
    everywhere = {**document, "metadata": {"name": "all"}, "spec": {**document["spec"], "allNodes": True}}
    del everywhere["spec"]["nodeName"]
    put(objects, everywhere)
    assert objects.claims_on("node-a") is None


def test_claims_for_extended_resources_are_those_that_the_real_plugin_makes() -> None:
    """By node. Classes come in the order of the recording."""
    kinds: Counter[str] = Counter()
    with lzma.open(VECTORS.with_name("dra-extended-1.36.jsonl.xz")) as lines:
        documents = [orjson.loads(line) for line in lines]
    for document in documents:
        case = scenario_from_json(document)
        assert isinstance(case, ExtendedCase)
        pod, classes = pod_from_json(document["pod"]), {each.name: each for each in case.classes}
        asks = asks_of(pod, lambda _: None, {}, classes, rules_for(VERSION))
        ask = (
            asks.on({name: 1000 * amount for name, amount in case.allocatable.items()})
            if asks is not None and not asks.is_empty
            else None
        )
        requests = [] if ask is None else [each.options[0] for claim in ask.claims for each in claim.requests]
        made = [{"name": each.name, "class": each.class_name, "count": each.number} for each in requests]
        expected = [
            {"name": each["name"], "class": each["exactly"]["deviceClassName"], "count": each["exactly"]["count"]}
            for each in document.get("requests") or ()
        ]
        verdict = document["verdict"] if asks is not None or document["verdict"] == "no-dra" else "not known"
        kinds[verdict] += 1
        assert verdict == "not known" or (made, ask is None) == (expected, verdict.startswith(("filter", "no-dra")))
    assert kinds["claim"] >= 240
    assert kinds["not known"] <= 20


def test_before_1_36_no_claim_is_made_for_extended_resources() -> None:
    gpu = DeviceClass("gpu", extended_resource=WANTED)
    pod = pod_from_json(pod_of(2, "1Gi", devices={WANTED: 1}))
    for version, is_made in (("1.36.0", True), ("1.35.6", False)):
        asks = asks_of(pod, lambda _: None, {}, {"gpu": gpu}, rules_for(version))
        assert asks is not None
        assert asks.is_empty is not is_made


def test_an_extended_resource_is_predicted_until_its_claim_is_written() -> None:
    """On node-b a device plugin serves it. Between filter and the write another pod may get another device."""
    gpu = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": WANTED}}
    slices = [slice_of(name, Random(1)) for name in ("node-a", "node-b")]
    forecasts, results, _ = forecasts_with(*slices, gpu)
    around = {"node-a": NodeContext(allocatable_milli={}), "node-b": NodeContext(allocatable_milli={WANTED: 1000})}
    limits = SearchLimits(around.__getitem__, lambda: False)
    seen: list[tuple[int, list[str]]] = []

    def judge(position: int, devices: Sequence[DynamicDevice]) -> int:
        seen.append((position, [each.claim for each in devices if each.is_predicted]))
        return position

    def asked(number: int) -> tuple[Pod, CallForecast]:
        pod = pod_from_json(pod_of(2, "1Gi", name=f"p{number}", devices={WANTED: 1}))
        call = forecasts.call(pod)
        assert call is not None
        call.judged([*around], [0, 0], NodeJudge("", judge, len), limits)
        return pod, call

    pod, call = asked(0)
    assert seen == [(0, [for_extended(0)]), (1, [])]
    first = call.predicted("node-a")
    assert first is not None
    (((device,),),) = first
    forecasts.passed(pod, call, [*around])
    assert len(asked(1)[1].predicted("node-a") or ()) == 2, "with the first pod there, and without it"

    forecasts.bind(pod, "node-a")
    assert len(asked(1)[1].predicted("node-a") or ()) == 2, "the claim is not written yet"
    written = claim_of("p0-extended", 0, {"devices": {"results": [result_of(device)]}})
    owner = {"kind": "Pod", "uid": pod.uid}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    written["metadata"] |= {"ownerReferences": [owner], "annotations": annotations}
    put(forecasts.objects, written)
    assert len(asked(1)[1].predicted("node-a") or ()) == 1
    assert results == ["agrees"]

    pod, call = asked(2)
    forecasts.passed(pod, call, [*around])
    forecasts.bind(pod, "node-b")
    assert asked(3)[1].is_alone, "the device plugin gives the device, so nothing is to be written"
    assert results == ["agrees"]


def result_of(device: AllocatedDevice) -> Json:
    return {"request": device.request, **dict(zip(("driver", "pool", "device"), device.id, strict=True))}


def test_a_claim_from_a_template_is_predicted_before_it_exists() -> None:
    """And while it is in flight, until it is written under its own name."""
    forecasts, results, _ = forecasts_with(slice_of("node-a", Random(3)), {"metadata": {"name": "gpu"}, "spec": {}})
    spec = claim_of("", 0)["spec"]
    template = decode_template({"metadata": {"name": "t", "namespace": "n"}, "spec": {"spec": spec}})
    assert template is not None
    pod = Pod(uid="u", name="p", namespace="n", containers=(), claims=("n/t/gpu",), templates=("n/t",))
    assert forecasts.call(pod) is None, "neither claim nor template is known"
    forecasts.objects.set_template(*template)
    call, node = forecasts.call(pod), DraNode("node-a", {})
    assert call is not None
    assert possible(call, node) == [[[[(DRIVER, "node-a", "gpu-0")]]]]

    pod = replace(pod, claims=("n/p-gpu-x",))
    call = forecasts.call(pod)
    assert call is not None, "the status names it, and the watch of claims is behind"
    assert possible(call, node) == [[[[(DRIVER, "node-a", "gpu-0")]]]]
    forecasts.passed(pod, call, ["node-a"])
    forecasts.bind(pod, "node-a")
    assert not results
    results_of_it = [{"driver": DRIVER, "pool": "node-a", "device": "gpu-0", "request": "r"}]
    put(forecasts.objects, claim_of("p-gpu-x", 0, {"devices": {"results": results_of_it}}))
    forecasts.bind(pod, "node-a")
    assert results == ["agrees"]


def test_a_worker_predicts_claims_from_templates_and_for_extended_resources() -> None:
    gpu = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": WANTED}}
    forecasts, _, _ = forecasts_with(slice_of("node-a", Random(1)), gpu)
    spec = claim_of("", 0)["spec"]
    forecasts.objects.set_template(
        *decode_template({"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": spec}}) or ("", None)
    )
    document = pod_of(2, "1Gi", devices={WANTED: 1})
    document["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": "t"}]
    sent = pickle.loads(pickle.dumps((QuestionForecast.of(forecasts.objects), forecasts.objects.claims_on("node-a"))))
    around = NodeContext(devices=forecasts.objects.devices_on("node-a"), claims=sent[1], allocatable_milli={})
    taken = sent[0].take(pod_from_json(document), "node-a", around)
    found = {each.name: each.claim for each in (taken.devices if taken else ()) if each.is_predicted}
    assert found == {"gpu-0": "default/t/own", "gpu-1": for_extended(0)}


def test_pods_of_a_question_get_the_devices_that_they_would_get_one_after_another() -> None:
    """As if each claim were written before the next pod comes. The last pods get none."""
    gpu = {"metadata": {"name": "gpu"}, "spec": {}}
    for seed in range(20):
        shapes = Random(seed).choices(range(len(SHAPES)), k=8)
        forecasts, _, _ = forecasts_with(slice_of("node-a", Random(seed)), gpu)
        objects = forecasts.objects
        for shape in range(len(SHAPES)):
            template = {
                "metadata": {"name": f"t-{shape}", "namespace": "n"},
                "spec": {"spec": claim_of("", shape)["spec"]},
            }
            objects.set_template(*decode_template(template) or ("", None))
        around, question = NodeContext(claims=objects.claims_on("node-a")), QuestionForecast.of(objects)
        around, outcomes = replace(around, devices=objects.devices_on("node-a")), set[bool]()
        for number, shape in enumerate(shapes):
            put(objects, claim_of(f"c-{number}", shape))
            _, call = one_claim(forecasts, f"c-{number}")
            (answer,) = possible(call, DraNode("node-a", {}))
            pod = Pod(uid="u", name="p", namespace="n", containers=(), claims=("n/p/own",), templates=(f"n/t-{shape}",))
            taken = question.take(pod, "node-a", around)
            assert (taken is None) == (answer is None)
            if taken is None or answer is None:
                break
            outcomes.add(bool(answer))
            here = [each.key for each in taken.devices if each.claim == "n/p/own"]
            assert sorted(here) == sorted(answer[0][0] if answer else [])
            if taken.around is None:
                assert answer == []
                continue
            around = taken.around
            results = [{"driver": a, "pool": b, "device": c} for a, b, c in answer[0][0]]
            put(objects, claim_of(f"c-{number}", shape, {"devices": {"results": results}}))
            assert {d.key for d in around.devices or () if not d.claim} == {
                d.key for d in objects.devices_on("node-a") if not d.claim
            }
        assert outcomes == {True, False}


def test_a_claim_that_the_pod_does_not_need_is_left_out() -> None:
    document = pod_of(2, "1Gi")
    document["spec"]["resourceClaims"] = [
        {"name": "none", "resourceClaimTemplateName": "t"},
        {"name": "made", "resourceClaimTemplateName": "t"},
        {"name": "later", "resourceClaimTemplateName": "t"},
    ]
    document["status"] = {"resourceClaimStatuses": [{"name": "none"}, {"name": "made", "resourceClaimName": "made-x"}]}
    document["spec"]["containers"][0]["resources"]["claims"] = [{"name": each} for each in ("later", "none", "bad")]
    pod = pod_from_json(document)
    assert pod.claims == ("default/made-x", "default/t/later")
    assert pod.templates == ("default/t", "default/t")
    assert pod.containers[0].claims == ("default/t/later", "")


def one_claim(forecasts: Forecasts, name: str, *, was_filtered: bool = False) -> tuple[Pod, CallForecast]:
    """A call about a pod with one claim, which exists."""
    pod = Pod(uid=name, name=name, namespace="n", containers=(), claims=(f"n/{name}",))
    call = forecasts.call(pod, was_filtered=was_filtered)
    assert call is not None
    return pod, call


def test_what_was_free_when_kube_scheduler_looked_counts_until_bind() -> None:
    """Devices that are released between filter and prioritize were not free for it, however long that takes."""
    allocation = {"devices": {"results": [{"driver": DRIVER, "pool": "node-a", "device": "gpu-0"}]}}
    document = slice_of("node-a", Random(3))
    document["spec"]["devices"] = [{"name": f"gpu-{i}"} for i in range(3)]
    gpu = {"metadata": {"name": "gpu"}, "spec": {}}
    forecasts, _, now = forecasts_with(document, gpu, claim_of("c", 0), claim_of("ended", 0, allocation))
    node, after, before = DraNode("node-a", {}), [[[(DRIVER, "node-a", "gpu-0")]]], [[[(DRIVER, "node-a", "gpu-1")]]]
    pod, call = one_claim(forecasts, "c")
    assert possible(call, node) == [before]
    forecasts.passed(pod, call, ["node-a"])
    put(forecasts.objects, claim_of("ended", 0))
    now[0] += RELEASE_SECONDS + 3
    assert possible(one_claim(forecasts, "c", was_filtered=True)[1], node) == [[*after, *before]]
    assert possible(one_claim(forecasts, "c")[1], node) == [after], "the pod comes again"


def test_the_likeliest_case_is_the_first() -> None:
    """A pod that can be on two nodes is likely to be on the other one. Where it ends, its nodes are told."""
    gpu = {"metadata": {"name": "gpu"}, "spec": {}}
    slices = [slice_of(name, Random(3)) for name in ("node-a", "node-b")]
    for each in slices:
        each["spec"]["devices"] = [{"name": f"gpu-{i}"} for i in range(2)]
    forecasts, _, _ = forecasts_with(*slices, gpu, claim_of("c", 0), claim_of("other", 0))
    nodes = [DraNode(name, {}) for name in ("node-a", "node-b")]
    other, call = one_claim(forecasts, "other")
    possible(call, *nodes)
    forecasts.passed(other, call, ["node-a", "node-b"])
    first = [found[0][0][0][2] for found in possible(one_claim(forecasts, "c")[1], *nodes) if found]
    assert first == ["gpu-0", "gpu-0"]

    assert not forecasts.left()
    forecasts.bind(other, "node-a")
    assert forecasts.left() == {"node-b"}
    first = [found[0][0][0][2] for found in possible(one_claim(forecasts, "c")[1], *nodes) if found]
    assert first == ["gpu-1", "gpu-0"]
    forecasts.objects.set_claim("n/other", None)
    assert forecasts.left() == {"node-a"}
    assert not forecasts.left()


def test_devices_that_are_released_during_a_call_make_their_node_uncertain() -> None:
    """The search sees them as free, and kube-scheduler did not."""
    allocation = {"devices": {"results": [{"driver": DRIVER, "pool": "node-a", "device": "gpu-0"}]}}
    slices = [slice_of(name, Random(3)) for name in ("node-a", "node-b")]
    for each in slices:
        each["spec"]["devices"] = [{"name": f"gpu-{i}"} for i in range(2)]
    gpu = {"metadata": {"name": "gpu"}, "spec": {}}
    forecasts, results, _ = forecasts_with(*slices, gpu, claim_of("c", 0), claim_of("ended", 0, allocation))
    nodes = [DraNode(name, {}) for name in ("node-a", "node-b")]
    pod, call = one_claim(forecasts, "c")
    put(forecasts.objects, claim_of("ended", 0))
    assert [found and found[0][0][0][2] for found in possible(call, *nodes)] == ["gpu-0", "gpu-0"]
    forecasts.passed(pod, call, [node.name for node in nodes])
    assert [call.is_open(node.name) for node in nodes] == [True, False]

    results_of_it = [{"driver": DRIVER, "pool": "node-a", "device": "gpu-1"}]
    put(forecasts.objects, claim_of("c", 0, {"devices": {"results": results_of_it}}))
    forecasts.bind(pod, "node-a")
    assert results == ["not_known"]


B = RefusalReason.DEMAND_FORECAST


@pytest.mark.parametrize(
    ("cases", "certain", "likely"),
    [
        ([[B]], True, True),
        ([[B, B], [B]], True, True),
        ([[B], [None]], False, True),
        ([[B, None]], False, False),
        ([[None], [B]], False, False),
        ([[], [B]], True, False),
    ],
    ids=["one", "all", "in the likeliest case", "in one of two orders", "in another case", "nothing is free"],
)
def test_a_refusal_is_likely_if_all_allocations_of_the_likeliest_case_break_the_demand(
    cases: Sequence[Sequence[RefusalReason | None]],
    certain: bool,  # noqa: FBT001
    likely: bool,  # noqa: FBT001
) -> None:
    """A kube-scheduler that walks pools in random order can make several allocations in one case."""
    found = PredictedRefusal.of(cases)
    assert found is not None
    assert (found.is_certain, found.is_likely) == (certain, likely)
