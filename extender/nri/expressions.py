"""Expressions that select containers.

Mirrors: `pkg/apis/resmgr/v1alpha1/expression.go` (Validate, Evaluate, KeyValue, splitKeys, ResolveRef) and EvalKey of
`pkg/resmgr/cache/{pod,container}.go`.
"""

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget
from extender.nri.globs import PatternError, glob_match
from extender.nri.objects import NriContainer, NriPod

_ONE_VALUE: Final = frozenset({"Equals", "NotEqual", "Matches", "MatchesNot"})
_NO_VALUE: Final = frozenset({"Exists", "NotExist", "AlwaysTrue"})
_ANY_VALUES: Final = frozenset({"In", "NotIn", "MatchesAny", "MatchesNone"})
_OF_ONE_POD: Final = frozenset({"id", "pod/id", "pod/uid", "pod/name"})
KUBELET_LABELS: Final = "io.kubernetes."
"""What labels begin with that a kubelet gives to sandboxes and containers: ids and names."""
_PLAIN_KEYS: Final = frozenset({"id", "uid", "name", "namespace", "qosclass"})
_CHARACTERS_A_STEP: Final = 256
"""This many characters that are split or joined take at most as long as a step."""


@dataclass(frozen=True, slots=True)
class Expression:
    """`key operator values`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def fault(self) -> str | None:
        """What is wrong with it; None if it is valid."""
        for key in _split_keys(self.key)[0]:
            fault = _key_fault(key)
            if fault is not None:
                return fault
        if self.operator in _ONE_VALUE:
            return None if len(self.values) == 1 else f"{self.operator} requires a single value"
        if self.operator in _NO_VALUE:
            return f"{self.operator} does not take any values" if self.values else None
        return None if self.operator in _ANY_VALUES else f"unknown operator {self.operator!r}"

    @property
    def is_about_one_pod(self) -> bool:
        """Whether the key is an id or a pod's name, or a label that a kubelet sets."""
        keys = (posixpath.normpath(key) for key in _split_keys(self.key)[0])
        return any(key in _OF_ONE_POD or "/" + KUBELET_LABELS in key for key in keys)

    def matches(self, container: NriContainer, pod: NriPod | None, budget: Budget = UNLIMITED) -> bool:
        """Whether it selects *container*; *pod*: None if the plugin no longer has it.

        Raises:
            BudgetError: it has too many values, or patterns that take too long.
        """
        if self.operator == "AlwaysTrue":
            return True
        budget.spend(1 + len(self.values) + len(self.key) // _CHARACTERS_A_STEP)
        keys, joiner = _split_keys(self.key)
        budget.spend(len(keys))
        value = _value(keys, joiner, container, pod)
        budget.spend(0 if value is None else len(value) // _CHARACTERS_A_STEP)
        match self.operator:
            case "Equals":
                return value is not None and self.values[0] in (value, "*")
            case "NotEqual":
                return value is None or value != self.values[0]
            case "Exists":
                return value is not None
            case "NotExist":
                return value is None
            case "In" | "NotIn":
                found = value is not None and any(v in (value, "*") for v in self.values)
            case _:
                found = value is not None and any(_globs(pattern, value, budget) for pattern in self.values)
        return found != (self.operator in ("NotIn", "MatchesNot", "MatchesNone"))


def _globs(pattern: str, value: str, budget: Budget) -> bool:
    try:
        return glob_match(pattern, value, budget)
    except PatternError:
        return False


def _split_keys(key: str) -> tuple[Sequence[str], str]:
    """The keys of a joint key, and the separator of their values."""
    if len(key) < 4 or key[0] != ":":
        return [key], ""
    separator, joiner = key[1], key[2]
    if _is_separator(separator) and _is_separator(joiner):
        return key[3:].split(separator), joiner
    return key[1:].split(":"), ":"


def _is_separator(char: str) -> bool:
    return not ((char.isascii() and char.isalnum()) or char in "/.")


def _key_fault(key: str) -> str | None:
    key = key.lstrip("/")
    for _ in range(key.count("/") + 1):
        head, _, rest = key.partition("/")
        if head in _PLAIN_KEYS:
            return f"trailing key {rest!r} after {head!r}" if rest else None
        if head not in ("pod", "labels", "tags"):
            return f"unknown key {head!r}"
        if not rest:
            return f"missing trailing key after {head!r}"
        if head != "pod":
            return None
        key = rest
    return None


def _value(keys: Sequence[str], joiner: str, container: NriContainer, pod: NriPod | None) -> str | None:
    """The value of a key of these parts; None if no part of it can be resolved."""
    values = [_resolve(one, container, pod) for one in keys]
    if len(keys) == 1:
        return values[0]
    return None if all(value is None for value in values) else joiner.join(value or "" for value in values)


def _resolve(key: str, container: NriContainer, pod: NriPod | None) -> str | None:
    head, _, rest = posixpath.normpath(key).partition("/")
    if head == "pod":
        return None if pod is None or not rest else _resolve_pod(rest, pod)
    if head == "name" and not rest:
        return container.name
    if head == "id" and not rest:
        return container.id
    if head == "namespace" and not rest:
        return "" if pod is None else pod.namespace
    if head == "qosclass" and not rest:
        return "" if pod is None else pod.qos.value
    if head == "labels" and rest:
        return container.labels.get(rest)
    return None


def _resolve_pod(key: str, pod: NriPod) -> str | None:
    """A pod's QoS class never resolves: it is of another type than string in the plugin."""
    head, _, rest = key.partition("/")
    if head == "labels" and rest:
        return pod.labels.get(rest)
    plain = {"name": pod.name, "namespace": pod.namespace, "id": pod.id, "uid": pod.uid}
    return plain.get(head) if not rest else None
