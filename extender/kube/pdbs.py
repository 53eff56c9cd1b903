"""PodDisruptionBudgets, for the preempt verb: the pods that each covers, and how many of them may be evicted now.

RBAC: `list`, `watch` on poddisruptionbudgets (policy/v1).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.client import KubeClient
from extender.kube.fields import integer, items, mapping, strings, text, texts
from extender.kube.watch import Deliver, Source, Watch, WatchSettings

SOURCE: Final = Source(path="/apis/policy/v1/poddisruptionbudgets")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement:
    """One `matchExpressions` term. `operator` as in the API."""

    key: str
    operator: str
    values: frozenset[str]

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
            case _:
                return False


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """One budget. `requirements` None: no selector, which covers no pod; empty: covers the whole namespace.

    `disruptions_allowed`: pods that may be evicted now. `already_disrupted`: names of pods whose eviction is already
    counted and needs no further allowance.
    """

    namespace: str
    name: str
    requirements: tuple[LabelRequirement, ...] | None
    disruptions_allowed: int
    already_disrupted: frozenset[str]

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is covered by this budget."""
        if namespace != self.namespace or self.requirements is None:
            return False
        return all(requirement.holds(labels) for requirement in self.requirements)


def decode_budget(value: Mapping[str, Any]) -> tuple[str, DisruptionBudget] | None:
    """The budget's namespace/name and the budget. None without a name."""
    metadata, spec, status = mapping(value, "metadata"), mapping(value, "spec"), mapping(value, "status")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    if not name:
        return None
    return f"{namespace}/{name}", DisruptionBudget(
        namespace=namespace,
        name=name,
        requirements=_requirements(mapping(spec, "selector")) if isinstance(spec.get("selector"), dict) else None,
        disruptions_allowed=max(0, integer(status, "disruptionsAllowed")),
        already_disrupted=frozenset(mapping(status, "disruptedPods")),
    )


def watch_budgets(
    client: KubeClient, deliver: Deliver[DisruptionBudget], settings: WatchSettings | None = None
) -> Watch[DisruptionBudget]:
    """The watch of all budgets, not yet started."""
    return Watch(client, SOURCE, decode=decode_budget, deliver=deliver, settings=settings)


def _requirements(selector: Mapping[str, Any]) -> tuple[LabelRequirement, ...]:
    equal = [
        LabelRequirement(key=key, operator="In", values=frozenset({value}))
        for key, value in sorted(strings(selector, "matchLabels").items())
    ]
    terms = [
        LabelRequirement(
            key=text(term, "key"),
            operator=text(term, "operator"),
            values=frozenset(texts(term, "values")),
        )
        for term in items(selector, "matchExpressions")
    ]
    return (*equal, *terms)
