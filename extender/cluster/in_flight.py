"""The ledgers of all nodes, and what was predicted of each pod on its way.

Laws of this file
- A ledger lives as long as it has anything to say, whether or not a report of its node is held.
- Every pod whose admission becomes known is told to `settled` once, with all that the replay had said of it.
- Time alone changes a node only at times that `due` names.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final

from extender.cluster import ledger as ledgers
from extender.cluster.ledger import EMPTY, Ledger, Release
from extender.cluster.node import Observation
from extender.cluster.projection import Following, follow, gives_back, is_over, is_safe_from_ends, survives_sudden_exit
from extender.cluster.steps import Steps, held_by
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod
from extender.replay.state import ManagerState
from extender.replay.verdict import Verdict


class Fate(StrEnum):
    """What became of a pod that was on its way."""

    ADMITTED = "admitted"
    """A report shows what the kubelet gave it."""
    REFUSED = "refused"
    """The kubelet refused it."""
    LEFT = "left"
    """It was gone before a report showed it."""
    LOST = "lost"
    """Nothing was ever heard of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """One pod's fate, against what the replay predicted.

    `verdicts`: each way that it could go; with `complete` False there were more. `state`: the reported state, for
    ADMITTED; `reason`: the kubelet's, for REFUSED. `predict_again`: what would have been predicted of the pod with
    another kubelet, as the verdicts and whether they are complete; None: not known. Pure, and takes as long as
    `projection.follow`.
    """

    node_name: str
    pod: Pod
    kubelet: Kubelet
    fate: Fate
    verdicts: tuple[Verdict, ...]
    complete: bool = True
    state: ManagerState | None = None
    reason: str = ""
    predict_again: Callable[[Kubelet], tuple[tuple[Verdict, ...], bool]] | None = None


def ignore(_settled: Settled) -> None:
    """For those who do not want to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long things are believed; seconds.

    `assume`: a pod that we bound, unless the watch or a report shows it. `finish`: a finished pod still counts, because
    its kubelet has yet to tear it down. `ghost`: a pod that a report shows and the watch does not know is in doubt, and
    after that the kubelet's own list decides. `absence`: a pod that runs and that no report shows.
    """

    assume: float = 120.0
    finish: float = 3.0
    ghost: float = 30.0
    absence: float = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """All that `follow` is called with: values, so that the call can wait until somebody needs its result."""

    kubelet: Kubelet
    state: ManagerState
    ledger: Ledger
    now: float
    ghosts: frozenset[str]
    doubtful: frozenset[str]


@dataclass(slots=True)
class _OnNode:
    """`question`: what follows now; `following` is the result for `answered`, which may be an earlier question.

    `steps` and `over` belong to the state of `question`: whether each admission is over, by UID. `not_listed`: pods
    that the pod watch has alive, that hold something, and that the kubelet does not list.
    """

    ledger: Ledger = EMPTY
    question: _Question | None = None
    answered: _Question | None = None
    following: Following | None = None
    kubelet: Kubelet | None = None
    steps: Steps = field(default_factory=Steps)
    over: dict[str, bool] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    unknown_since: dict[str, float] = field(default_factory=dict)
    ghosts: frozenset[str] = frozenset()
    doubtful: frozenset[str] = frozenset()
    not_listed: frozenset[str] = frozenset()


class InFlight:
    """All ledgers. Synchronous; times are arguments."""

    def __init__(self, timeouts: Timeouts, settled: Callable[[Settled], None]) -> None:
        self._timeouts: Final = timeouts
        self._settled: Final = settled
        self._nodes: dict[str, _OnNode] = {}
        self._due: list[tuple[float, str]] = []
        self.watching = False
        """Whether the pod watch tells of every pod, so that one it does not know does not exist."""

    def __len__(self) -> int:
        """Pods on their way, on all nodes."""
        return sum(len(node.ledger.admits) for node in self._nodes.values())

    def ledger(self, name: str) -> Ledger:
        """What has happened on one node."""
        node = self._nodes.get(name)
        return EMPTY if node is None else node.ledger

    def drop(self, name: str) -> None:
        """The node is gone, and whatever was on its way to it."""
        self._nodes.pop(name, None)

    def assume(self, name: str, pod: Pod, now: float) -> bool:
        """We are about to bind *pod* to the node. Returns, as the following do, whether the ledger has changed."""
        return self._change(name, lambda ledger: ledgers.assume(ledger, pod, now))

    def is_safe(self, name: str, refused_before: frozenset[str]) -> bool:
        """Whether every pod on its way to the node is still surely admitted, but for those that were not before."""
        following = self._following(name)
        if following is None or following.one_order:
            return True
        return following.complete and following.refused <= refused_before

    def refused(self, name: str) -> frozenset[str]:
        """Pods on their way to the node that its kubelet may refuse."""
        following = self._following(name)
        return frozenset() if following is None else following.refused

    def is_admitted(self, name: str, uid: str) -> bool:
        """Whether all that the replay says of a pod on its way is that it is admitted."""
        following = self._following(name)
        if following is None or uid not in following.verdicts:
            return True
        return following.complete and uid not in following.refused

    def survives_sudden_exit(
        self, observation: Observation, uid: str, now: float, max_admissions: int
    ) -> Callable[[], bool] | None:
        """See `following.survives_sudden_exit`; None where the replay says nothing of the pod, or it surely is so.

        Any thread may call it.
        """
        name, kubelet, state = observation.node_name, observation.kubelet, observation.state
        node, following = self._nodes.get(name), self._following(name)
        if node is None or following is None or uid not in following.verdicts:
            return None
        if kubelet is None or state is None:
            return None
        if not node.doubtful and is_safe_from_ends(kubelet, state, node.ledger, uid, now, following, node.steps):
            return None
        return partial(
            survives_sudden_exit,
            kubelet,
            state,
            node.ledger,
            uid,
            now,
            ghosts=node.ghosts,
            doubtful=node.doubtful,
            max_admissions=max_admissions,
        )

    def may_be_gone(self, name: str, now: float) -> frozenset[str]:
        """Pods of the node that its kubelet may count no more, and may still count."""
        node = self._nodes.get(name)
        return frozenset() if node is None else node.ledger.may_be_gone(now) | node.doubtful

    def lacks_pods(self, name: str, started_at: float) -> bool:
        """Whether the reports lack pods that a kubelet started at this time finds in its first list, and admits."""
        node = self._nodes.get(name)
        if node is None:
            return False
        not_listed = node.not_listed - node.ledger.leaving - node.ledger.left.keys()
        return bool(not_listed) or any(admit.firm and admit.since < started_at for admit in node.ledger.admits)

    def forget(self, name: str, uid: str) -> bool:
        """Our binding failed."""
        return self._change(name, lambda ledger: ledgers.forget(ledger, uid))

    def doubt(self, name: str, uid: str) -> bool:
        """Nobody knows what came of our binding."""
        return self._change(name, lambda ledger: ledgers.doubt(ledger, uid))

    def see(self, name: str, pod: Pod, now: float, *, started: bool, ordered: bool) -> bool:
        """The watch shows *pod* alive on the node; *ordered*: see `ledger.Admit`."""
        self._nodes.setdefault(name, _OnNode()).known.add(pod.uid)
        return self._change(name, lambda ledger: ledgers.see(ledger, pod, now, started=started, ordered=ordered))

    def refuse(self, name: str, uid: str, reason: str, now: float) -> bool:
        """The watch shows that the kubelet refused the pod.

        One that had started was admitted, and refused when its kubelet started again: that says nothing of what was
        predicted of its admission.
        """
        self._unknow(name, uid)
        admit = self.ledger(name).find(uid)
        was_admitted = admit is not None and admit.started_at is not None
        self._settle(name, uid, Fate.LEFT if was_admitted else Fate.REFUSED, reason=reason)
        return self._change(name, lambda ledger: ledgers.refuse(ledger, uid, now))

    def ask_to_leave(self, name: str, uid: str) -> bool:
        """The watch shows that the pod's deletion was asked for."""
        return self._change(name, lambda ledger: ledgers.ask_to_leave(ledger, uid))

    def finish(self, name: str, uid: str, now: float) -> bool:
        """The watch shows the pod as finished: soon it counts no more."""
        self._unknow(name, uid)
        return self._change(name, lambda ledger: ledgers.leave(ledger, uid, now + self._timeouts.finish))

    def gone(self, name: str, uid: str, now: float) -> bool:
        """The watch shows that the pod no longer exists."""
        self._unknow(name, uid)
        return self._change(name, lambda ledger: ledgers.leave(ledger, uid, now))

    def due(self, now: float) -> set[str]:
        """Nodes whose state time has changed since the last call."""
        names = set()
        while self._due and self._due[0][0] <= now:
            names.add(heapq.heappop(self._due)[1])
        return names

    def update(self, observation: Observation, heard_at: float, now: float) -> None:
        """Bring the ledger and the report together. Cheap: what follows from them is left to `follow`."""
        kubelet, state, name = observation.kubelet, observation.state, observation.node_name
        if kubelet is None or state is None:
            return
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _OnNode()
        steps = node.steps
        if node.question is None or node.question.state is not state:
            steps, node.over = Steps(), {}
        self._reconcile(name, node, observation, kubelet, state, heard_at, now, steps)
        node.ghosts, node.doubtful = self._unknown(name, node, observation, state, now)
        lists_pods = observation.pod_uids is not None
        node.not_listed = (state.pod_uids & node.known) - observation.listed if lists_pods else frozenset()
        node.kubelet, node.steps = kubelet, steps
        node.question = _Question(
            kubelet=kubelet, state=state, ledger=node.ledger, now=now, ghosts=node.ghosts, doubtful=node.doubtful
        )
        due = node.ledger.next_due(now, self._timeouts.assume)
        if due is not None:
            heapq.heappush(self._due, (max(due, now + 0.001), name))

    def follow(self, observation: Observation) -> Following | None:
        """What follows for the node, as of the last `update`; None if the report is not enough for any verdict."""
        if observation.kubelet is None or observation.state is None:
            return None
        return self._following(observation.node_name)

    def _following(self, name: str) -> Following | None:
        node = self._nodes.get(name)
        if node is None or node.question is None:
            return None
        asked = node.question
        if node.answered is not asked:
            node.following = follow(
                asked.kubelet,
                asked.state,
                asked.ledger,
                asked.now,
                ghosts=asked.ghosts,
                doubtful=asked.doubtful,
                steps=node.steps,
            )
            node.answered = asked
        return node.following

    def _reconcile(
        self,
        name: str,
        node: _OnNode,
        observation: Observation,
        kubelet: Kubelet,
        state: ManagerState,
        heard_at: float,
        now: float,
        steps: Steps,
    ) -> None:
        """Take out of the ledger what the report or the time has settled."""
        admits = node.ledger.admits
        for admit in admits:
            if admit.uid not in node.over:
                node.over[admit.uid] = is_over(kubelet, observation, steps.request(admit.pod, kubelet.rules))
        shown = {a.uid for a in admits if node.over[a.uid]}
        shown |= ledgers.absent(node.ledger, heard_at, absence_seconds=self._timeouts.absence)
        gone = {e.uid for e in node.ledger.events if isinstance(e, Release) and e.due <= now}
        left = observation.left - _contradicted(node, observation)
        for admit in admits:
            if admit.uid in shown:
                self._settle(name, admit.uid, Fate.ADMITTED, state=state)
            elif admit.uid in gone or admit.uid in left:
                self._settle(name, admit.uid, Fate.LEFT)
            elif ledgers.is_lost(admit, now, self._timeouts.assume):
                self._settle(name, admit.uid, Fate.LOST)
        starting = {**node.ledger.starting, **{a.uid: a.pod for a in admits if a.uid in shown}}
        if shown:
            node.ledger = ledgers.confirm(node.ledger, shown)
        node.ledger = ledgers.end(node.ledger, left, now)
        node.ledger = ledgers.expire(node.ledger, state.pod_uids, now, assume_seconds=self._timeouts.assume)
        starting = {
            uid: pod
            for uid, pod in starting.items()
            if uid not in node.ledger.left
            and kubelet.memory_static
            and gives_back(state, steps.request(pod, kubelet.rules))
        }
        node.ledger = ledgers.start(node.ledger, starting)
        node.told &= {a.uid for a in node.ledger.admits}

    def _unknown(
        self, name: str, node: _OnNode, observation: Observation, state: ManagerState, now: float
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Pods of the report that do not exist, and those that may not: the watch knows of every pod, and not of them.

        Both readings are followed at first, because the watch may be late, and a kubelet collects what a pod held only
        when it admits the next one. Later a pod that the kubelet lists is believed, and another one is not. A pod that
        the watch has alive and the kubelet does not list stays in doubt until they agree: a kubelet that has just
        started lists no pod, and admits the running ones again when its first list comes.
        """
        unknown: frozenset[str] = frozenset()
        if self.watching:
            unknown = state.pod_uids - node.known - node.ledger.left.keys()
            unknown -= {a.uid for a in node.ledger.admits}
        since = node.unknown_since = {uid: node.unknown_since.get(uid, now) for uid in sorted(unknown)}
        due = {uid: at + self._timeouts.ghost for uid, at in since.items()}
        doubtful = frozenset(uid for uid, at in due.items() if now < at)
        if doubtful:
            heapq.heappush(self._due, (min(due[uid] for uid in doubtful), name))
        ghosts = unknown - doubtful - observation.listed
        contradicted = _contradicted(node, observation) & state.pod_uids
        return ghosts, doubtful | observation.unlisted - ghosts | contradicted

    def _unknow(self, name: str, uid: str) -> None:
        node = self._nodes.get(name)
        if node is not None:
            node.known.discard(uid)

    def _change(self, name: str, change: Callable[[Ledger], Ledger]) -> bool:
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _OnNode()
        before, node.ledger = node.ledger, change(node.ledger)
        return node.ledger is not before

    def _settle(self, name: str, uid: str, fate: Fate, *, state: ManagerState | None = None, reason: str = "") -> None:
        """Tell the fate of a pod of which something was predicted; later calls for it find nothing to tell."""
        node = self._nodes.get(name)
        admit = None if node is None else node.ledger.find(uid)
        if node is None or admit is None or node.kubelet is None or uid in node.told:
            return
        following = self._following(name)
        verdicts = None if following is None else following.verdicts.get(uid)
        if following is None or verdicts is None:
            return
        node.told.add(uid)
        self._settled(
            Settled(
                node_name=name,
                pod=admit.pod,
                kubelet=node.kubelet,
                fate=fate,
                verdicts=verdicts,
                complete=following.complete,
                state=state,
                reason=reason,
                predict_again=None if node.question is None else partial(_predict_again, node.question, uid),
            )
        )


def _predict_again(asked: _Question, uid: str, kubelet: Kubelet) -> tuple[tuple[Verdict, ...], bool]:
    following = follow(kubelet, asked.state, asked.ledger, asked.now, ghosts=asked.ghosts, doubtful=asked.doubtful)
    return following.verdicts.get(uid, ()), following.complete


def _contradicted(node: _OnNode, observation: Observation) -> frozenset[str]:
    """Pods that the kubelet does not count and that the API server had on the node, not finished, when last heard."""
    return observation.left & node.known


def holdings(settled: Settled) -> Mapping[str, object]:
    """What the report shows of the pod; empty where there is none."""
    return {} if settled.state is None else held_by(settled.state, settled.pod.uid)
