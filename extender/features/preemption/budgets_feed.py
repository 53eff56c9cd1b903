"""PodDisruptionBudgets, for the preempt verb: the pods that each covers, and how many of them may be evicted now.

RBAC: `list`, `watch` on poddisruptionbudgets (policy/v1).
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from extender.kube.fields import integer, items, mapping, strings, text, texts
from extender.kube.source import Source
from extender.scheduling.preemption.budgets import DisruptionBudget, LabelRequirement


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


BUDGETS: Final = Source(path="/apis/policy/v1/poddisruptionbudgets", decode=decode_budget, key=attrgetter("path"))
"""All budgets."""


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
