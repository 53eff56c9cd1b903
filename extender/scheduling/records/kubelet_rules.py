"""Which rule of the replay explains a disagreement: the prediction is made again with each rule inverted.

Rules of this file
- A rule is tried only if it can matter for the node's policies and options and its kubelet's minor version, or if it
  is set by hand.
- Only single rules are tried. A kubelet that differs in two of them at once is not recognised.
- `agreeing_rules` is pure and takes as long as some hundred admissions, so it belongs in a thread.
- Bounded: rules for each disagreement, disagreements for each kubelet, disagreements that wait, nodes.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from extender.bounded import BoundedMap
from extender.cluster.events import SettledPod
from extender.kubelet.budget import Budget
from extender.kubelet.config import TopologyPolicy
from extender.kubelet.errors import BudgetError, KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.rules import FIXES, NEWEST_MINOR, SWITCHES, Rules
from extender.kubelet.startup import start

MAX_RULES: Final = 16
"""How many rules are tried for one disagreement."""
MAX_EXAMINED: Final = 50
"""How many disagreements are examined for one kubelet; more of them show nothing new."""
MAX_WAITING: Final = 100
"""How many disagreements wait to be examined; each holds two states of its node."""
MAX_NODES: Final = 20_000


class RuleSetting(NamedTuple):
    """A rule of the replay, on or off."""

    rule: str
    value: bool

    def __str__(self) -> str:
        return self.rule if self.value else f"{self.rule}=false"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """A kubelet seems to have *setting*, because *agreeing* of its *examined* failed predictions agree with it."""

    node_name: str
    setting: RuleSetting
    agreeing: int
    examined: int

    @property
    def sentence(self) -> str:
        """The behaviour in one sentence."""
        source = f" (kubernetes/kubernetes#{FIXES[self.setting.rule]})" if self.setting.rule in FIXES else ""
        return (
            f"this node's kubelet behaves as with {self.setting}{source}: "
            f"with it, {self.agreeing} of {self.examined} failed predictions agree"
        )


@dataclass(slots=True)
class _OfNode:
    """What was examined of one kubelet. `identity` differs after an upgrade of the node."""

    identity: object
    waiting: int = 0
    examined: int = 0
    agreeing: dict[RuleSetting, int] = field(default_factory=dict)


class KubeletBehaviours:
    """Disagreements that wait to be examined, and what the examined ones showed about each node's kubelet.

    `wake` is called when there is one more to examine. Everything but `agreeing_rules` runs on the event loop.
    """

    def __init__(self) -> None:
        self.waiting: deque[SettledPod] = deque()
        self.wake: Callable[[], None] = lambda: None
        self._nodes: BoundedMap[str, _OfNode] = BoundedMap(MAX_NODES)

    def add(self, settled: SettledPod) -> None:
        """Have a disagreement examined, unless no rule could explain it, or enough are examined or waiting."""
        if settled.predict_again is None or not rules_to_try(settled.kubelet) or len(self.waiting) >= MAX_WAITING:
            return
        node = self._nodes.get(settled.node_name)
        if node is None or node.identity != settled.kubelet.identity:
            node = _OfNode(settled.kubelet.identity)
        self._nodes[settled.node_name] = node
        if node.examined + node.waiting < MAX_EXAMINED:
            node.waiting += 1
            self.waiting.append(settled)
            self.wake()

    def record(self, settled: SettledPod, agreeing: Sequence[RuleSetting]) -> list[Behaviour]:
        """Record a result of `agreeing_rules`; returns what is now known of the kubelet for the first time."""
        node = self._nodes.get(settled.node_name)
        if node is None or node.identity != settled.kubelet.identity:
            return []
        before = {each.setting for each in self.of(settled.node_name, settled.kubelet)}
        node.waiting -= 1
        node.examined += 1
        for setting in agreeing:
            node.agreeing[setting] = node.agreeing.get(setting, 0) + 1
        return [each for each in self.of(settled.node_name, settled.kubelet) if each.setting not in before]

    def of(self, node_name: str, kubelet: Kubelet | None) -> list[Behaviour]:
        """Rules that explain at least half of the disagreements of the node's *kubelet*, the best one first."""
        node = self._nodes.get(node_name)
        if node is None or kubelet is None or node.identity != kubelet.identity:
            return []
        rows = sorted(node.agreeing.items(), key=lambda row: (-row[1], row[0]))
        return [Behaviour(node_name, rule, count, node.examined) for rule, count in rows if 2 * count >= node.examined]

    def all(self, kubelet_of: Callable[[str], Kubelet | None]) -> Iterator[Behaviour]:
        """The behaviours of all nodes, by node name. *kubelet_of*: the kubelet that a node has now."""
        return (each for name in sorted(self._nodes) for each in self.of(name, kubelet_of(name)))


def rules_to_try(kubelet: Kubelet) -> tuple[RuleSetting, ...]:
    """Rules for which this kubelet may differ from what is assumed; `MAX_RULES` at most.

    These are fixes that no known minor has, if an option makes them matter; rules of newer minors; rules set by hand.
    How running pods are admitted again is not among them, because that is not predicted.
    """
    options, rules = kubelet.cpu_options, kubelet.rules
    spans_nodes = options.distribute_across_numa
    fixes = {
        "distribute_inside_hint": spans_nodes and kubelet.policy is not TopologyPolicy.NONE,
        "distribute_whole_groups": spans_nodes and options.full_pcpus_only,
        "spread_by_topology": options.distribute_across_cores,
    }
    newest = Rules.of(f"1.{NEWEST_MINOR}", kubelet.config.feature_gates, {})
    may_have = [name for name, matters in fixes.items() if matters and not getattr(rules, name)]
    may_have += sorted(n for n in SWITCHES - FIXES.keys() if getattr(newest, n) and not getattr(rules, n))
    settings = [RuleSetting(name, True) for name in may_have]  # noqa: FBT003 - a value, not a flag
    settings += [
        RuleSetting(name, not value)
        for name, value in sorted(kubelet.config.rule_overrides.items())
        if getattr(rules, name) is value and RuleSetting(name, not value) not in settings
    ]
    return tuple(settings[:MAX_RULES])


def agreeing_rules(settled: SettledPod, agrees: Callable[[SettledPod], bool]) -> list[RuleSetting]:
    """Those rules of `rules_to_try` that predict what the kubelet did. Pure; any thread may call it.

    *agrees* compares a prediction with what the kubelet did.
    """
    if settled.predict_again is None:
        return []
    found = []
    for setting in rules_to_try(settled.kubelet):
        config = settled.kubelet.config
        overrides = {**config.rule_overrides, setting.rule: setting.value}
        try:
            kubelet = start(settled.kubelet.machine, replace(config, rule_overrides=overrides), Budget())
            kubelet = replace(kubelet, runtime=settled.kubelet.runtime)
        except (KubeletConfigError, BudgetError):
            continue
        verdicts, complete = settled.predict_again(kubelet)
        again = replace(settled, kubelet=kubelet, verdicts=verdicts, complete=complete)
        if verdicts and agrees(again):
            found.append(setting)
    return found
