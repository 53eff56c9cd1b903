"""PodDisruptionBudgets, for the preempt verb: the pods that each covers, and how many of them may be evicted now.

RBAC: `list`, `watch` on poddisruptionbudgets (policy/v1).
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from extender.kube.fields import integer, mapping, text
from extender.kube.source import Source
from extender.scheduling.preemption.budgets import DisruptionBudget
from extender.wire.label_selectors import requirements_of


def decode_budget(value: Mapping[str, Any]) -> tuple[str, DisruptionBudget] | None:
    """The budget's namespace/name and the budget. None without a name."""
    metadata, spec, status = mapping(value, "metadata"), mapping(value, "spec"), mapping(value, "status")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    if not name:
        return None
    return f"{namespace}/{name}", DisruptionBudget(
        namespace=namespace,
        name=name,
        requirements=requirements_of(spec.get("selector")),
        disruptions_allowed=max(0, integer(status, "disruptionsAllowed")),
        already_disrupted=frozenset(mapping(status, "disruptedPods")),
    )


BUDGETS: Final = Source(path="/apis/policy/v1/poddisruptionbudgets", decode=decode_budget, key=attrgetter("path"))
"""All budgets."""
