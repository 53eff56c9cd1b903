"""Random refusals: the numbers in the sentence about each one, against the pod and a count in the naive kubelet.

`python -m tests.questions.sentences --sentences 1000 --seed 1` prints every sentence that does not agree.
"""

import argparse
import copy
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Any, Final

from extender.questions.explain import explain
from extender.wire.pods import pod_from_json
from tests.features.groups.unequal_groups import GPU, make_case
from tests.oracle.amounts import parse_cpus
from tests.oracle.kubelet import NaiveKubelet
from tests.reports import pod_of

Json = dict[str, Any]
GIB: Final = 1 << 30
_AMOUNT: Final = r"(?P<{0}>\d+)(?P<{0}_unit>Gi|Mi|Ki)? (of )?(?P<{0}_what>memory|CPUs?|\S+/gpu)"
_WHO: Final = r"(Container (?P<container>\w+)|The pod as a whole) wants " + _AMOUNT.format("wanted")
MOST: Final = re.compile(
    _WHO
    + r".*, and the most that is free on one( NUMA node)? is "
    + _AMOUNT.format("most")
    + r", on NUMA (?P<numa>\d+)\."
)
AVAILABLE: Final = re.compile(_WHO + r", and " + _AMOUNT.format("most") + r" (?P<verb>is|are) available\.")
NEVER: Final = re.compile(_WHO + r", more than any one NUMA node of this machine has\.")
SPREAD: Final = re.compile(_WHO + r" from (?P<width>one|\d+) NUMA nodes?, and what is free is spread over more\.")
TOO_LITTLE: Final = re.compile(_WHO + r" from \d+ NUMA nodes, and no set of NUMA nodes has that much free\.")
KEPT: Final = re.compile(
    _WHO + r" from (?P<width>one|\d+) NUMA nodes?, with those of the pod's init containers on NUMA (?P<numa>[\d,-]+), "
    r"and there is no such place\."
)
PLACES: Final = re.compile(
    r"(Container (?P<container>\w+)|The pod as a whole) could have (?P<offers>.*), "
    r"but not all of it in the same place\."
)
_OFFER: Final = re.compile(_AMOUNT.format("wanted") + r" on NUMA (?P<sets>[\d,-]*\d( or [\d,-]*\d)*)")
WANTS: Final = re.compile(_WHO)
FORMS: Final = {
    "most on one": MOST, "available": AVAILABLE, "never": NEVER, "spread": SPREAD, "too little": TOO_LITTLE,
    "kept": KEPT, "places": PLACES,
}  # fmt: skip
_UNITS: Final = {None: 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def refusals(seed: int) -> Iterator[tuple[str, Json, NaiveKubelet]]:
    """Sentences about random pods on the nodes of a random case, with the pod and the kubelet that refused it."""
    random, case = Random(seed), make_case(seed)
    for node, kubelet in zip(case.nodes, case.kubelets, strict=True):
        pod = pod_of(name="asked")
        pod["spec"]["containers"] = [_container(random, f"c{i}") for i in range(random.randint(1, 3))]
        if random.random() < 0.4:
            pod["spec"]["initContainers"] = [_container(random, f"i{i}") for i in range(random.randint(1, 2))]
        story = explain(node.kubelet, node.state, pod_from_json(pod), search=False)
        naive = copy.deepcopy(kubelet)
        is_admitted = naive.admit(pod)["admit"]
        assert is_admitted is (story.first_fault is None)
        if not is_admitted:
            assert story.first_fault is not None
            yield story.first_fault, pod, naive


def _container(random: Random, name: str) -> Json:
    gpus = {GPU: random.randint(1, 2)} if random.random() < 0.3 else None
    made = pod_of(random.randint(1, 9), random.choice(["1Gi", "3Gi", "9Gi"]), devices=gpus)["spec"]["containers"][0]
    return {**made, "name": name}


def fault(sentence: str, pod: Json, naive: NaiveKubelet) -> str:
    """What is wrong with the numbers of a sentence; "" if nothing is."""
    if (places := PLACES.match(sentence)) is not None:
        return _fault_of_places(places, pod, naive)
    wants = WANTS.match(sentence)
    if wants is None:
        return ""
    resource = _resource(wants["wanted_what"])
    wanted = int(wants["wanted"]) * _UNITS[wants["wanted_unit"]]
    if wanted != (asked := _asked(pod, wants["container"], resource)):
        return f"{asked} were asked for"
    if (found := MOST.match(sentence)) is not None:
        free = _free(naive, pod["metadata"]["uid"], resource)
        most = max(free.values())
        expected = most, min(numa for numa in free if free[numa] == most)
        if (int(found["most"]) * _UNITS[found["most_unit"]], int(found["numa"])) != expected:
            return f"{expected[0]} are free on NUMA {expected[1]}"
        return "" if expected[0] < wanted else "no contradiction to what is wanted"
    if (found := AVAILABLE.match(sentence)) is not None:
        had = int(found["most"]) * _UNITS[found["most_unit"]]
        if resource != "memory" and had != (total := _all_free(naive, pod["metadata"]["uid"], resource)):
            return f"{total} are free"
        return "" if had < wanted and (found["verb"] == "is") == (had == 1) else "no contradiction to what is wanted"
    return _fault_of_sums(sentence, resource, wanted, naive, pod["metadata"]["uid"])


def _fault_of_sums(sentence: str, resource: str, wanted: int, naive: NaiveKubelet, uid: str) -> str:
    """The same of the sentences without a second number."""
    free = _free(naive, uid, resource)
    if NEVER.match(sentence) is not None:
        most = max(_capacity(naive, resource).values())
        return "" if most < wanted else f"one has {most}"
    if (found := SPREAD.match(sentence)) is not None:
        width = 1 if found["width"] == "one" else int(found["width"])
        largest, total = sum(sorted(free.values())[-width:]), sum(free.values())
        return "" if resource == "memory" or largest < wanted <= total else f"{largest} and {total} are free"
    if (found := KEPT.match(sentence)) is not None:
        kept = _kept(naive, uid, resource)
        if kept != parse_cpus(found["numa"]):
            return f"those of init containers are on NUMA {sorted(kept)}"
        width = 1 if found["width"] == "one" else int(found["width"])
        room = max(
            (sum(free[numa] for numa in each) for each in combinations(free, width) if kept <= set(each)), default=0
        )
        return f"{room} are free in such a place" if room >= wanted else ""
    if TOO_LITTLE.match(sentence) is not None:
        return "" if resource == "memory" or sum(free.values()) < wanted else f"{sum(free.values())} are free"
    return ""


def _fault_of_places(places: re.Match[str], pod: Json, naive: NaiveKubelet) -> str:
    """What is wrong with the sets of NUMA nodes that each resource could come from."""
    offered: list[set[frozenset[int]]] = []
    for offer in _OFFER.finditer(places["offers"]):
        resource, sets = _resource(offer["wanted_what"]), {parse_cpus(each) for each in offer["sets"].split(" or ")}
        wanted = int(offer["wanted"]) * _UNITS[offer["wanted_unit"]]
        if wanted != (asked := _asked(pod, places["container"], resource)):
            return f"{asked} of {resource} were asked for"
        offered.append({frozenset(each) for each in sets})
        free, sizes = _free(naive, pod["metadata"]["uid"], resource), {len(each) for each in sets}
        if resource == "memory" and sizes != {1}:
            continue
        enough = {
            frozenset(each)
            for size in sizes
            for each in combinations(free, size)
            if sum(free[numa] for numa in each) >= wanted
            and _kept(naive, pod["metadata"]["uid"], resource) <= set(each)
        }
        if enough != offered[-1]:
            return f"{resource}: {sorted(map(sorted, enough))} have enough"
    return "" if offered and not frozenset.intersection(*map(frozenset, offered)) else "a place for all"


def _kept(naive: NaiveKubelet, uid: str, resource: str) -> frozenset[int]:
    """The NUMA nodes of what init containers leave to the next container, which has to take it over."""
    if resource == "cpu":
        left = naive.cpus.reuse.get(uid, frozenset())
        return frozenset(numa for numa, cpus in naive.machine.cpus_of_numa.items() if cpus & left)
    places = naive.devices.numa.get(resource, {})
    reused = naive.devices.reuse.get(uid, {}).get(resource, set())
    return frozenset(numa for each in reused for numa in places[each] or ())


def _capacity(naive: NaiveKubelet, resource: str) -> dict[int, int]:
    """What each NUMA node has when nothing runs."""
    if resource == "memory":
        return {numa: node.allocatable["memory"] for numa, node in naive.memory.nodes.items()}
    if resource == "cpu":
        return {numa: len(cpus) for numa, cpus in naive.machine.cpus_of_numa.items()}
    devices = naive.devices
    return {
        numa: sum(numa in (devices.numa[resource][each] or ()) for each in devices.healthy[resource])
        for numa in naive.machine.numa_ids
    }


def _resource(word: str) -> str:
    return "cpu" if word.startswith("CPU") else word


def _asked(pod: Json, container: str | None, resource: str) -> int:
    """What a container, or the pod as a whole, asks for."""
    spec = pod["spec"]
    inits, apps = spec.get("initContainers", []), spec["containers"]
    if container is not None:
        return next(_limit(each, resource) for each in (*inits, *apps) if each["name"] == container)
    return max([sum(_limit(each, resource) for each in apps), *(_limit(each, resource) for each in inits)])


def _limit(container: Json, resource: str) -> int:
    text = container["resources"]["limits"].get(resource, "0")
    return int(text.removesuffix("Gi")) * (GIB if text.endswith("Gi") else 1)


def _ids(naive: NaiveKubelet, uid: str, resource: str) -> set[Any]:
    """What the next container of the pod can have: free ones, and those that init containers leave."""
    if resource == "cpu":
        return set(naive.cpus.available | naive.cpus.reuse.get(uid, frozenset()))
    devices = naive.devices
    return (devices.healthy[resource] - devices.allocated.get(resource, set())) | devices.reuse.get(uid, {}).get(
        resource, set()
    )


def _all_free(naive: NaiveKubelet, uid: str, resource: str) -> int:
    return len(_ids(naive, uid, resource))


def _free(naive: NaiveKubelet, uid: str, resource: str) -> dict[int, int]:
    """The same by NUMA node."""
    if resource == "memory":
        reuse = naive.memory.reuse.get(uid, {})
        return {
            numa: (node.free["memory"] if node.cells == {numa} else 0) + reuse.get((frozenset({numa}), "memory"), 0)
            for numa, node in naive.memory.nodes.items()
        }
    ids = _ids(naive, uid, resource)
    if resource == "cpu":
        return {numa: len(ids & cpus) for numa, cpus in naive.machine.cpus_of_numa.items()}
    places = naive.devices.numa[resource]
    return {numa: sum(numa in (places[each] or ()) for each in ids) for numa in naive.machine.numa_ids}


def main(arguments: Sequence[str] | None = None) -> None:
    """Look at sentences until there are enough, and count them by form."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    counted: Counter[str] = Counter()
    seed = asked.seed * 1_000_000
    while counted.total() < asked.sentences:
        seed += 1
        for sentence, pod, naive in refusals(seed):
            wrong = fault(sentence, pod, naive)
            form = next((name for name, form in FORMS.items() if form.match(sentence)), "other")
            counted["WRONG" if wrong else form] += 1
            if wrong:
                print(seed, sentence, "->", wrong, flush=True)
    print(dict(counted))


if __name__ == "__main__":
    main()
