"""Which candidates are feasible, by the judgements of their classes.

Names keep their order, and every candidate is either feasible or refused with a reason: kube-scheduler shows no reason
at all for a node that a reply leaves out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from extender.kubelet.verdict import Certainty
from extender.scheduling.columns import Answer, Int64s
from extender.scheduling.reasons import NEVER_TEXTS, RefusalReason

PASSED: Final = "passed"
"""The label of feasible nodes in counts. Refused nodes are counted by the text of their reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """`feasible` in the order of the names that were asked for; the text of the reason by name of each other node.

    `resolvable` has the refusals that preemption may resolve, if they are told apart; the others are in `refused`.
    `error`: an error to reply with, so that kube-scheduler tries the pod again after its back-off; empty: none.
    """

    feasible: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    resolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""

    @property
    def may_pass_later(self) -> bool:
        """Whether no node is feasible, and at least one of them may be when it changes."""
        return not self.feasible and not NEVER_TEXTS.issuperset(self.refused.values())


def avoid(filtered: Filtered, names: Collection[str], reason: RefusalReason = RefusalReason.UNSETTLED) -> Filtered:
    """Refuse the feasible nodes among *names* for *reason*. If no other node is feasible, *filtered* is unchanged."""
    after = without(filtered, names, reason.text)
    return after if after.feasible else filtered


def without(filtered: Filtered, names: Collection[str], text: str) -> Filtered:
    """*filtered* with the feasible nodes among *names* refused with the reason *text*; itself if there are none."""
    unwanted = frozenset(names)
    refused = {name: text for name in filtered.feasible if name in unwanted}
    if not refused:
        return filtered
    feasible = [name for name in filtered.feasible if name not in refused]
    return Filtered(feasible=feasible, refused={**filtered.refused, **refused})


def refuse_all(filtered: Filtered, text: str) -> Filtered:
    """*filtered* with all feasible nodes refused with the reason *text*."""
    return without(filtered, filtered.feasible, text)


def newly_refused(before: Filtered, after: Filtered) -> Mapping[str, str]:
    """The text of the reason by name of each node that *after* refuses and *before* does not."""
    if after is before:
        return {}
    return {name: text for name, text in after.refused.items() if name not in before.refused}


def with_feasible(filtered: Filtered, *names: str) -> Filtered:
    """*filtered* with these refused nodes made feasible."""
    return Filtered(
        feasible=[*filtered.feasible, *names],
        refused={each: why for each, why in filtered.refused.items() if each not in names},
    )


def with_resolvable(filtered: Filtered) -> Filtered:
    """*filtered* with the refusals that preemption may resolve in `resolvable`."""
    parts: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, text in filtered.refused.items():
        parts[text in NEVER_TEXTS][name] = text
    return replace(filtered, resolvable=parts[False], refused=parts[True])


def counts_of(numbers: Int64s, answers: Sequence[Answer]) -> Mapping[tuple[str, Certainty], int]:
    """How many candidates got each answer, by (PASSED or the text of the reason, certainty).

    *numbers*: for each candidate, which of *answers* it got.
    """
    counts = np.bincount(numbers, minlength=len(answers)).tolist()
    return {(text or PASSED, certainty): n for (text, certainty), n in zip(answers, counts, strict=True) if n}


def filtered_by_texts(names: Sequence[str], numbers: Int64s, texts: Sequence[str | None]) -> Filtered:
    """Separate the candidates. *texts*: all different; None of those that pass.

    *numbers*: for each candidate, which of *texts* it got.
    """
    candidates, refused = np.array(names, np.object_), dict[str, str]()
    parts = {text: candidates[numbers == number].tolist() for number, text in enumerate(texts)}
    feasible = parts.pop(None, [])
    for text, part in parts.items():
        refused |= dict.fromkeys(part, str(text))
    return Filtered(feasible=feasible, refused=refused)
