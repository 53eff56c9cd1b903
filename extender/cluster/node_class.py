"""Classes of nodes that give the same verdict for every pod.

Rules of this file
- Two nodes are of one class if their kubelets (hardware, configuration, version) and their states are equal, and
  the same parts of them are known. What is computed for a class is valid for all of its nodes.
- Nodes with the same set of possible states share a class.
- A class id is never reused, so that cached values of a former class are never read.
- Equal kubelets of one table are one object: real nodes differ in their states more than in hardware.
- `NodeClass` compares by identity, because `ClassTable` creates one object for each class: a lookup costs one pointer
  hash.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import ref

from extender.cluster.free_table import NO_PLACE, FreeTable
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.rules import Rules
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider
from extender.nri.counts import NriCounts
from extender.replay.counts import Counts
from extender.replay.creation import grant_count, policy_of
from extender.replay.free_amounts import FreeAmounts
from extender.replay.possible_states import NO_STATES, PossibleStates

NOTHING_HIDDEN: Final[frozenset[Provider]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class NodeClass:
    """The common properties of the nodes of one class.

    `possible`: the possible states of the nodes. If no replay is possible it is empty, and `kubelet` is None; `counts`
    may then still prove refusals. `hidden`: the managers whose state is unknown. A pod that needs none of them still
    gets a correct verdict. `stale`: the last report or heartbeat is old. `score_only`: too many predictions for the
    kubelet were wrong, so these nodes are score-only. `awaited`: nothing is known yet, because this service has just
    started. `pools`: what the NRI plugin publishes, where nothing else is known of its policy.
    """

    id: int
    kubelet: Kubelet | None = None
    possible: PossibleStates = NO_STATES
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    stale: bool = False
    score_only: bool = False
    counts: Counts | None = None
    awaited: bool = False
    pools: NriCounts | None = None
    place: int = field(default=NO_PLACE, init=False, repr=False)
    """In the table of free amounts; see `free_table`."""

    @property
    def states(self) -> tuple[ManagerState, ...]:
        """The possible states; empty if no verdict is possible."""
        return self.possible.states

    @property
    def state(self) -> ManagerState | None:
        """The likeliest of `states`; None if no verdict is possible."""
        return self.possible.first

    @property
    def complete(self) -> bool:
        """Whether `states` has all possible states."""
        return self.possible.complete

    @property
    def has_nri(self) -> bool:
        """Whether the NRI topology-aware policy runs, which places every container."""
        if self.counts is not None:
            return self.counts.nri is not None
        return self.kubelet is not None and (self.kubelet.runtime is not None or Provider.RUNTIME in self.hidden)

    @property
    def rules(self) -> Rules | None:
        """The rules of the kubelet; None if it is unknown."""
        if self.kubelet is not None:
            return self.kubelet.rules
        return None if self.counts is None else self.counts.rules


HYPOTHETICAL: Final = -1
"""The id of a class that is judged once and not cached."""
UNKNOWN: Final = NodeClass(id=0)
"""Class returned for unknown nodes."""

AWAITED: Final = NodeClass(id=-1, awaited=True)
"""Used instead of `UNKNOWN` while the service warms up: exporters report again with their next heartbeat."""


class RetiredClasses:
    """Classes that no node has any longer, while records of calls refer to them. Only the event loop adds to it."""

    def __init__(self) -> None:
        self._held: Final[dict[int, tuple[int, ref[NodeClass]]]] = {}
        """Weight and class, by class id."""
        self.added_bytes = 0
        """The size of all that have come since `held_bytes` was called."""

    def add(self, node_class: NodeClass, weight_bytes: int) -> None:
        """Count a class that no node has any longer."""
        key = node_class.id
        self._held[key] = weight_bytes, ref(node_class, lambda _: self._held.pop(key, None))
        self.added_bytes += weight_bytes

    def held_bytes(self) -> int:
        """The size of all classes that are still held. Cost: one step for each of them."""
        self.added_bytes = 0
        return sum(weight for weight, _ in list(self._held.values()))


def weight_of(kubelet: Kubelet | None, state: ManagerState | None) -> int:
    """About how many bytes of memory a kubelet and a state take; never much less than they do."""
    found = 1000
    if kubelet is not None:
        machine = kubelet.machine
        found += len(machine.cpus) * (300 + machine.all_cpus.bit_length() // 3)
        found += (
            0 if (policy := policy_of(kubelet)) is None else 1000 * len(policy.setup.topology.machine.cpus) + (1 << 18)
        )
    if state is not None:
        found += 500 * (len(state.cpu.entries) + len(state.memory.entries) + len(state.devices.entries))
        found += 300 * sum(map(len, state.devices.devices.values()))
        found += 2000 * grant_count(state)
    return found


def key_of(possible: PossibleStates) -> object:
    """Equal for possible states that give the same verdict for every new pod."""
    states = possible.states
    one = states[0].key if len(states) == 1 else frozenset(state.key for state in states)
    return one, possible.complete, possible.in_turn, possible.contradictory, possible.changing


class ClassTable:
    """Gives equal nodes the same `NodeClass`, as long as one of them has it."""

    def __init__(self) -> None:
        self._classes: dict[object, NodeClass] = {}
        self._holders: dict[NodeClass, int] = {}
        self._keys: dict[NodeClass, object] = {}
        self._kubelets: dict[object, Kubelet] = {}
        """One object of equal kubelets, by their identity."""
        self._uses: Counter[int] = Counter()
        """How many classes have each of these objects, by its `id`: an identity takes long to compute."""
        self._rules: Counter[Rules] = Counter()
        self._last_id = UNKNOWN.id
        self.free: Final = FreeTable()
        self.retired: Final = RetiredClasses()
        self._nri_count = 0
        """Classes of nodes with the NRI topology-aware policy."""

    def __len__(self) -> int:
        return len(self._classes)

    @property
    def has_nri(self) -> bool:
        """Whether the NRI topology-aware policy runs on any node."""
        return self._nri_count > 0

    @property
    def rules(self) -> Collection[Rules]:
        """The rule sets of all kubelets that are held at present."""
        return self._rules.keys()

    def hold(
        self,
        kubelet: Kubelet | None,
        possible: PossibleStates,
        hidden: frozenset[Provider],
        *,
        stale: bool,
        score_only: bool = False,
        counts: Counts | None = None,
        pools: NriCounts | None = None,
    ) -> NodeClass:
        """The class of a node with these properties, for one more node. Pair each call with a `drop`."""
        if kubelet is None or not possible.states:
            return UNKNOWN if counts is None else self._one_more((counts, stale), counts=counts, stale=stale)
        shared = kubelet if id(kubelet) in self._uses else self._kubelets.setdefault(kubelet.identity, kubelet)
        return self._one_more(
            (id(shared), key_of(possible), hidden, stale, score_only, pools),
            kubelet=shared,
            possible=possible,
            hidden=hidden,
            stale=stale,
            score_only=score_only,
            pools=pools,
        )

    def _one_more(self, key: object, **properties: Any) -> NodeClass:
        """The class with these properties, for one more node. *key*: equal for equal properties."""
        found = self._classes.get(key)
        if found is None:
            self._last_id += 1
            found = self._classes[key] = NodeClass(id=self._last_id, **properties)
            self._keys[found], self._holders[found] = key, 0
            self._add(found)
        self._holders[found] += 1
        return found

    def _add(self, node_class: NodeClass) -> None:
        """Count a new class, and add it to the table of free amounts."""
        kubelet, possible, rules = node_class.kubelet, node_class.possible, node_class.rules
        assert rules is not None
        self._nri_count += node_class.has_nri
        self._rules[rules] += 1
        if kubelet is not None:
            self._uses[id(kubelet)] += 1
        if kubelet is not None and not node_class.has_nri:
            amounts = [FreeAmounts.of(kubelet, state) for state in possible.states]
            doubts = possible.complete, possible.contradictory, possible.changing
            traits = node_class.hidden, node_class.stale, node_class.score_only, *doubts
            object.__setattr__(node_class, "place", self.free.add(kubelet, amounts, traits))

    def drop(self, node_class: NodeClass) -> None:
        """Count one node less. The class is removed with its last node."""
        rules = node_class.rules
        if rules is None:
            return
        self._holders[node_class] -= 1
        if self._holders[node_class]:
            return
        del self._holders[node_class]
        del self._classes[self._keys.pop(node_class)]
        self.free.remove(node_class.place)
        if node_class.kubelet is not None:
            is_last = self._let_go(node_class.kubelet)
            self.retired.add(node_class, weight_of(node_class.kubelet if is_last else None, node_class.state))
        self._nri_count -= node_class.has_nri
        self._rules[rules] -= 1
        if not self._rules[rules]:
            del self._rules[rules]

    def _let_go(self, kubelet: Kubelet) -> bool:
        """Count one class less with this kubelet. Returns whether that was the last one."""
        self._uses[id(kubelet)] -= 1
        is_last = not self._uses[id(kubelet)]
        if is_last:
            del self._kubelets[kubelet.identity], self._uses[id(kubelet)]
        return is_last
