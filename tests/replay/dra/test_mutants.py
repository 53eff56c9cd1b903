"""Each rule of the allocator matters: without it the replay differs from a recording."""
# ruff: noqa: ANN401 - a mutant takes what it replaces takes

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.conformance import dra_scenario
from extender.dra import allocation, capacity, constraints, counters, pools, requests, search
from extender.dra.objects import MAX_DEVICES
from extender.dra.requests import Ask
from extender.dra.rules import AllocatorRules, rules_for
from extender.dra.search import Search
from tests.replay.dra.vectors import first_difference

Patch = Callable[[pytest.MonkeyPatch], None]


def rules(**changed: bool) -> Patch:
    def changed_rules(version: str, gates: Any) -> AllocatorRules:
        return replace(rules_for(version, gates), **changed)

    return lambda patch: patch.setattr(dra_scenario, "rules_for", changed_rules)


def instead(owner: object, name: str, new: object) -> Patch:
    return lambda patch: patch.setattr(owner, name, new)


def _rounds_down(wanted: Any, of: Any) -> Any:
    return wanted or of.value


def _restarts(self: Search, place: Any, ask: Ask, _start: int) -> Any:
    return ANY_OF(self, place, ask, 0)


def _last_option_first(self: Search, place: Any, options: int) -> Any:
    for option in reversed(range(options)):
        found = self._next(place._replace(option=option), 0)
        if found.name == "DONE":
            self.chosen[place.claim, place.request] = option
            return found
    return found


def _every_device(self: Ask) -> list[Any]:
    candidates = (each for pool in self._around.pools for each in pool.candidates())
    return [each for each in candidates if self.selects(each) and self.fits(each)]


def _only_its_own_sets(self: counters.CounterBook, pool: Any) -> dict[Any, int]:
    return dict(list(LEFT(self, pool).items())[:1])


def _by_full_name(candidate: Any, name: str) -> Any:
    return candidate.device.attributes.get(name)


def _without_elsewhere(**fields: Any) -> Any:
    return POOL(**{**fields, "elsewhere": ()})


def _once(_search: object, _claim: int, document: Any) -> Any:
    return ({**entry, "source": "FromClaim", "requests": list(names)} for names, entry in document.config)


ANY_OF, LEFT, POOL = Search._any_of, counters.CounterBook._left, pools.DevicePool
MUTANTS: dict[str, tuple[str, Patch]] = {
    "pools are not sorted": ("order", rules(sorts_pools=False)),
    "1.36.2 rolls back": ("partitionable-rejected", rules(rolls_back=True)),
    "1.36.3 does not roll back": ("partitionable-rejected", rules(rolls_back=False)),
    "counters are kept by driver": ("counters-of-two-drivers", rules(counters_by_driver=True)),
    "taints do not matter": ("taints", rules(device_taints=False)),
    "shared devices are taken whole": ("capacity", rules(consumable_capacity=False)),
    "counters do not matter": ("partitionable", rules(partitionable_devices=False)),
    "binding conditions are not known": ("binding-conditions", rules(binding_conditions=False)),
    "constraints know no lists": ("lists", rules(lists_in_constraints=False)),
    "CEL knows lists without the gate": ("lists-without-gate", rules(lists_in_cel=True)),
    "pools with binding conditions are not last": (
        "binding-conditions", instead(pools.SliceIndex, "_is_last", lambda *_: False),
    ),
    "amounts are not rounded": ("capacity", instead(capacity, "_rounded", _rounds_down)),
    "amounts are never refused": ("capacity-mixed", instead(capacity, "_breaks", lambda *_: False)),
    "one device less in a claim": ("limits", instead(search, "MAX_DEVICES", MAX_DEVICES - 1)),
    "one device less at least": ("limits", instead(requests, "MAX_DEVICES", MAX_DEVICES - 1)),
    "each device is searched from the first": ("exact-count", instead(Search, "_any_of", _restarts)),
    "the last subrequest is tried first": ("first-available", instead(Search, "_first_available", _last_option_first)),
    "all devices, though a pool is incomplete": ("pool-states", instead(Ask, "_every_device", _every_device)),
    "taken devices are free for others": ("multi-claim", instead(Search, "_is_in_use", lambda *_: False)),
    "admin access needs a free device": (
        "admin-access",
        instead(Search, "_is_in_use", lambda self, _place, _ask, each: bool(self._in_use.get(each.id))
                or each.id in self._around.held.whole),
    ),
    "only one counter is compared": ("partitionable", instead(counters.CounterBook, "_left", _only_its_own_sets)),
    "devices of other nodes consume no counters": (
        "counters-across-nodes", instead(pools, "DevicePool", _without_elsewhere),
    ),
    "every pool is valid": ("pool-states", instead(pools, "_is_valid", lambda *_: True)),
    "names always have a domain": ("constraints-mixed", instead(constraints, "attribute_of", _by_full_name)),
    "a constraint is for all requests": ("constraints-mixed", instead(constraints, "_applies", lambda *_: True)),
    "distinct values may be equal": (
        "distinct-attribute", instead(constraints._DistinctAttribute, "_differs", lambda *_: True),
    ),
    "a configuration stands once": ("configs", instead(allocation, "_of_claim", _once)),
    "classes have no configuration": ("configs", instead(allocation, "_of_classes", lambda *_: [])),
    "a claim can be used everywhere": ("node-selection", instead(allocation, "_node_selector", lambda *_: {})),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_differs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theme, mutate = MUTANTS[name]
    mutate(monkeypatch)

    assert first_difference(theme)
