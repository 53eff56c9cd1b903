"""Label selectors, and the required anti-affinity of a pod, which also keeps later pods away from it.

Parts of a wrong type count as missing: the API server has checked what comes from it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

from extender.wire.fields import objects


class LabelRequirement(Struct, frozen=True, kw_only=True):
    """One `matchExpressions` term, of pods or of nodes. `operator` as in the API: `Gt` and `Lt` have one value."""

    key: str = ""
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether *labels* meet it. An unknown operator is never met."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        try:
            have, (limit,) = int(value or ""), map(int, self.values)
        except ValueError:
            return False
        return have > limit if self.operator == "Gt" else self.operator == "Lt" and have < limit


def requirements_of(selector: object) -> tuple[LabelRequirement, ...] | None:
    """What a selector requires. Empty: nothing, so it selects every pod. None: there is none, and it selects no pod."""
    if not isinstance(selector, Mapping):
        return None
    equal, terms = selector.get("matchLabels"), selector.get("matchExpressions")
    return (
        *(_required(key, "In", [value]) for key, value in sorted(equal.items() if isinstance(equal, Mapping) else ())),
        *(_required(each.get("key"), each.get("operator"), each.get("values")) for each in objects(terms)),
    )


class AntiAffinity(NamedTuple):
    """One required term of a pod: no other pod that it selects may be where `topology_key` has the same value.

    `namespaces` None: all, or they are selected by labels, which are not known here; empty: the pod's own.
    """

    topology_key: str
    requirements: tuple[LabelRequirement, ...]
    namespaces: frozenset[str] | None = frozenset()

    def selects(self, own_namespace: str, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with *labels* in *namespace* is kept away from the pod with this term in *own_namespace*."""
        is_meant = self.namespaces is None or namespace in (self.namespaces or (own_namespace,))
        return is_meant and all(requirement.holds(labels) for requirement in self.requirements)


def anti_affinity_of(terms: object) -> Iterator[AntiAffinity]:
    """The required terms of a pod's `podAntiAffinity`, without those that select no pod."""
    for each in objects(terms):
        key, names = each.get("topologyKey"), each.get("namespaces")
        required = requirements_of(each.get("labelSelector"))
        if isinstance(key, str) and required is not None:
            known = frozenset(str(name) for name in names) if isinstance(names, list) else frozenset[str]()
            yield AntiAffinity(key, required, known if each.get("namespaceSelector") is None else None)


def _required(key: object, operator: object, values: object) -> LabelRequirement:
    texts = values if isinstance(values, list) else []
    return LabelRequirement(key=str(key), operator=str(operator), values=frozenset(map(str, texts)))
