"""PodDisruptionBudgets as values: which pods each covers, and how many of them may be evicted now."""

from collections.abc import Mapping
from dataclasses import dataclass

from extender.wire.label_selectors import LabelRequirement


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

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def counts(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the eviction of a pod uses this budget up, as kube-scheduler counts it.

        A budget without a selector, or with an empty one, is never used up. A pod without labels, or one that is
        already disrupted, uses no budget up.
        """
        is_counted = bool(self.requirements and labels) and name not in self.already_disrupted
        return is_counted and self.covers(namespace, labels)

    def limits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the eviction API asks this budget before it evicts a pod: a budget with an empty selector as well.

        Source: kube-apiserver `registry/core/pod/storage/eviction.go`, getPodDisruptionBudgets.
        """
        return bool(labels) and self.covers(namespace, labels)
