"""Affinity between containers: how much a new one prefers each pool. `Expression` selects the other containers.

Mirrors: `pkg/resmgr/cache/affinity.go` (parseSimple, parseFull, Validate), `pkg/resmgr/cache/pod.go`
(GetContainerAffinity, ScopeExpression), `policy/affinity.go` (registerImplicitAffinities, calculatePoolAffinities),
`policy/pools.go` (affinityScore), `pkg/apis/resmgr/v1alpha1/expression.go` (Validate, Evaluate, KeyValue, splitKeys,
ResolveRef) and EvalKey of `pkg/resmgr/cache/{pod,container}.go`.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget
from extender.nri.config import PolicyConfig
from extender.nri.objects import NriContainer, NriPod
from extender.nri.pools import Pool, PoolTree
from extender.nri.text import PatternError, as_text, as_texts, glob_match, json_fields
from extender.nri.verdict import NriRefusal, RefusalError

AFFINITY_KEY: Final = "resource-policy.nri.io/affinity"
ANTI_AFFINITY_KEY: Final = "resource-policy.nri.io/anti-affinity"
AFFINITY_KEYS: Final = (AFFINITY_KEY, ANTI_AFFINITY_KEY)
_MAX_WEIGHT: Final = 1000
_IMPLICIT_WEIGHT: Final = 10
_DECAY: Final = 0.75
_ONE_VALUE: Final = frozenset({"Equals", "NotEqual", "Matches", "MatchesNot"})
_NO_VALUE: Final = frozenset({"Exists", "NotExist", "AlwaysTrue"})
_ANY_VALUES: Final = frozenset({"In", "NotIn", "MatchesAny", "MatchesNone"})
_OF_ONE_POD: Final = frozenset({"id", "pod/id", "pod/uid", "pod/name"})
KUBELET_LABELS: Final = "io.kubernetes."
"""What labels begin with that a kubelet gives to sandboxes and containers: ids and names."""
_PLAIN_KEYS: Final = frozenset({"id", "uid", "name", "namespace", "qosclass"})
_CHARACTERS_A_STEP: Final = 256
"""To split or join this many characters takes no longer than one step."""


@dataclass(frozen=True, slots=True)
class Expression:
    """`key operator values`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def fault(self) -> str | None:
        """What is wrong with the expression; None if it is valid."""
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
        """Whether the expression selects *container*. *pod* None: the plugin no longer has the pod.

        Raises: BudgetError: the expression has too many values, or patterns that take too long.
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


_ALWAYS: Final = Expression("", "AlwaysTrue")


@dataclass(frozen=True, slots=True)
class Affinity:
    """Containers in `scope` that `match` count with `weight`."""

    scope: Expression
    match: Expression
    weight: int


def affinities(pod: NriPod, container: str, config: PolicyConfig) -> list[Affinity]:
    """The affinities of a container of *pod*: its annotated ones, else those that the configuration implies.

    Raises:
        RefusalError: an annotation of the pod is malformed, even if in the part of another container.
    """
    own = [
        *_annotated(pod, AFFINITY_KEY, 1).get(container, ()),
        *_annotated(pod, ANTI_AFFINITY_KEY, -1).get(container, ()),
    ]
    if own:
        return own
    if config.colocate_pods:
        own.append(Affinity(_pod_scope(pod), _ALWAYS, _IMPLICIT_WEIGHT))
    if config.colocate_namespaces:
        own.append(Affinity(_ALWAYS, Expression("namespace", "Equals", (pod.namespace,)), _IMPLICIT_WEIGHT))
    return own


def names_others(pod: NriPod) -> bool:
    """Whether an annotated affinity of *pod* selects containers by an id, or by the name of another pod."""
    own = _pod_scope(pod)
    try:
        lists = [*_annotated(pod, AFFINITY_KEY, 1).values(), *_annotated(pod, ANTI_AFFINITY_KEY, -1).values()]
    except RefusalError:
        return False
    used = (part for each in lists for affinity in each for part in (affinity.scope, affinity.match))
    return any(part != own and part.is_about_one_pod for part in used)


def _pod_scope(pod: NriPod) -> Expression:
    return Expression("pod/name", "Equals", (pod.name,))


def _annotated(pod: NriPod, key: str, weight: int) -> Mapping[str, list[Affinity]]:
    text = pod.annotations.get(key)
    if text is None:
        return {}
    document = pod.documents.get(text)
    if document is None and text in pod.documents:
        return {}
    if not isinstance(document, dict):
        raise RefusalError(NriRefusal.AFFINITY, f"annotation {key} is no map of containers")
    simple = _simple(pod, document, weight)
    return _full(pod, key, document, weight) if simple is None else simple


def _simple(pod: NriPod, document: Mapping[object, object], weight: int) -> Mapping[str, list[Affinity]] | None:
    """`name: [others]`, which applies in both directions; None if *document* is not of this form."""
    others: dict[str, set[str]] = {}
    for name, listed in document.items():
        texts = as_texts(listed)
        if texts is None:
            return None
        for other in texts:
            others.setdefault(str(name), set()).add(other)
            others.setdefault(other, set()).add(str(name))
    scope = _pod_scope(pod)
    return {
        name: [Affinity(scope, Expression("name", "Equals" if len(to) == 1 else "In", tuple(sorted(to))), weight)]
        for name, to in others.items()
    }


def _full(pod: NriPod, key: str, document: Mapping[object, object], weight: int) -> Mapping[str, list[Affinity]]:
    """`name: [{scope, match, weight}]`."""
    result: dict[str, list[Affinity]] = {}
    for name, entries in document.items():
        if entries is not None and not isinstance(entries, list):
            raise RefusalError(NriRefusal.AFFINITY, f"annotation {key} has no list for container {name}")
        result[str(name)] = [_entry(pod, key, entry, weight) for entry in entries or ()]
    return result


def _entry(pod: NriPod, key: str, entry: object, weight: int) -> Affinity:
    if entry is None:
        raise RefusalError(NriRefusal.PANIC, f"annotation {key} has an empty entry")
    fields = _fields(entry, ("scope", "match", "weight"))
    own = 0 if fields is None else fields.get("weight") or 0
    own = int(own) if isinstance(own, float) and own.is_integer() else own
    if fields is None or not isinstance(own, int) or isinstance(own, bool) or not -(2**31) <= own < 2**31:
        raise RefusalError(NriRefusal.AFFINITY, f"annotation {key} has an entry without scope, match and weight")
    scope = _pod_scope(pod) if fields.get("scope") is None else _expression(fields["scope"], key)
    match = _expression(fields.get("match"), key)
    for expression in (scope, match):
        fault = expression.fault()
        if fault is not None:
            raise RefusalError(NriRefusal.AFFINITY, f"annotation {key}: {fault}")
    own = (own if weight > 0 else -own) if own else weight
    return Affinity(scope, match, max(-_MAX_WEIGHT, min(_MAX_WEIGHT, own)))


def _fields(value: object, names: Sequence[str]) -> dict[str, object] | None:
    """The fields of an object, by lower case name; None if *value* is no object or has other fields."""
    fields = json_fields(value)
    return fields if fields is not None and fields.keys() <= set(names) else None


def _expression(value: object, key: str) -> Expression:
    fields = _fields(value, ("key", "operator", "values"))
    if fields is not None:
        name, operator = as_text(fields.get("key")), as_text(fields.get("operator"))
        values = as_texts(fields.get("values"))
        if name is not None and operator is not None and values is not None:
            return Expression(name, operator, tuple(values))
    raise RefusalError(NriRefusal.AFFINITY, f"annotation {key} has a malformed expression")


def pool_affinities(
    own: Sequence[Affinity],
    container: str,
    placed: Sequence[tuple[NriContainer, NriPod | None, int]],
    budget: Budget = UNLIMITED,
) -> dict[int, int]:
    """The sum of weights per pool. *placed*: the other containers of the cache that hold a grant, with their pool.

    Raises:
        BudgetError: there are too many affinities, or they are too long.
    """
    result: dict[int, int] = {}
    for affinity in own:
        for other, pod, pool in placed:
            if (
                other.id != container
                and affinity.scope.matches(other, pod, budget)
                and affinity.match.matches(other, pod, budget)
            ):
                result[pool] = result.get(pool, 0) + affinity.weight
    return result


def affinity_score(per_pool: Mapping[int, int], pool: Pool, tree: PoolTree) -> float:
    """How much *pool* is preferred: the weights at it, above it and below it, which decrease with distance."""
    score = 0.0
    factor = _DECAY
    for ancestor in pool.ancestors:
        score += factor * per_pool.get(ancestor, 0)
        factor *= _DECAY
    for below in _breadth_first(pool, tree):
        weight = per_pool.get(below, 0)
        if weight:
            score += _DECAY ** (tree.pools[below].depth - pool.depth) * weight
    return score


def _breadth_first(pool: Pool, tree: PoolTree) -> list[int]:
    """The subtree, parents before children: floats add up in the plugin's order."""
    order, stack = [], [pool.id]
    children: dict[int, list[int]] = {}
    for i in pool.subtree:
        children.setdefault(tree.pools[i].parent, []).append(i)
    while stack:
        at = stack.pop()
        order.append(at)
        stack += reversed(children.get(at, ()))
    return order
