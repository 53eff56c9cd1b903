"""The events on one node that its last report does not show yet, in the order in which the kubelet processes them.

Rules of this file
- A ledger is a value: every function returns a new one, or the same one if nothing changes.
- Events are in the order in which the kubelet processes them: first those of the pod watch (the API server's order is
  the kubelet's), then the pods that we bound and that the watch has not shown yet.
- A pod is confirmed only once a report shows resources allocated to it. A listed pod may still be in flight, and a
  report may be older than the binding. So that a report does not show a pod proves nothing until the pod has run for
  `absence_seconds` before the last message of the node.
- Any author of pods can make a pod look like a mirror pod. So it takes room until later reports decide, or until it is
  gone, and it changes no other pod of the same UID.
- A pod whose deletion was requested may end at any moment, at first. If reports still show it after `ENDING_SECONDS`,
  it counts like a pod that runs: its author's grace period can be a year.
- A UID is admitted at most once, and never returns after it has left: a repeated event changes nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice, takewhile
from typing import Final, assert_never

from extender.cluster.events import (
    BindingInDoubt,
    ContainerRefused,
    MirrorGone,
    MirrorSeen,
    PodAssumed,
    PodEvent,
    PodFinished,
    PodForgotten,
    PodGone,
    PodRefused,
    PodSeen,
    PodTerminating,
    PodUnread,
)
from extender.replay.pod import Pod

NO_PODS: Final[frozenset[str]] = frozenset()
"""The one empty set that all ledgers share: another one would take 216 bytes."""
ENDING_SECONDS: Final = 60.0
"""How long a pod counts as ending: twice the usual grace period."""
LEFT_REMEMBERED_SECONDS: Final = 900.0
"""How long a pod that left is remembered: a late report that still shows it has no effect."""
MAX_LEFT: Final = 4096
"""How many pods that left are remembered, the last ones: whoever creates and deletes pods makes no ledger long."""


class BindingState(Enum):
    """The state of the binding of a pod in flight."""

    ASSUMED = "assumed"
    """This service is binding the pod or has bound it. Expires unless the watch shows the pod."""
    IN_DOUBT = "in doubt"
    """This service tried to bind the pod, and the outcome is unknown. Expires as well."""
    SEEN = "seen"
    """The pod watch has shown the pod on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """A pod in flight: the kubelet admits it, or has admitted it since the report.

    `since`: when it became known. `started_at`: when the watch first showed it as started; None until then. `ordered`:
    its position among the events is that of its binding, which is unknown for a pod from a list. `static`: it is known
    from its mirror pod alone. `is_ours`: this service bound the pod, or offered the node for it in a filter call.
    Otherwise its author or another scheduler named the node.
    """

    uid: str
    pod: Pod
    since: float
    binding: BindingState = BindingState.ASSUMED
    started_at: float | None = None
    ordered: bool = True
    static: bool = False
    is_ours: bool = False

    @property
    def is_seen(self) -> bool:
        """Whether the watch has shown it on the node."""
        return self.binding is BindingState.SEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A pod that left. From `due` on the kubelet no longer counts it."""

    uid: str
    due: float


Event = Admit | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """One node's events. Times are seconds of the service's clock.

    `resolved`: pods on the node whose admission is over and in the reports. `left`: pods that are gone, with the time,
    in the order of these times.
    `leaving`: pods whose deletion was requested, with the time when it was seen. `starting`: resolved pods whose init
    containers may release at any moment what the report shows.
    """

    events: tuple[Event, ...] = ()
    resolved: frozenset[str] = NO_PODS
    left: Mapping[str, float] = field(default_factory=dict)
    leaving: Mapping[str, float] = field(default_factory=dict)
    starting: Mapping[str, Pod] = field(default_factory=dict)

    @property
    def admits(self) -> tuple[Admit, ...]:
        """The pods that no report shows yet, in order."""
        return tuple(e for e in self.events if isinstance(e, Admit))

    def find(self, uid: str) -> Admit | None:
        """The event of a pod in flight; None for other pods."""
        return next((e for e in self.events if isinstance(e, Admit) and e.uid == uid), None)

    def may_be_gone(self, now: float) -> frozenset[str]:
        """Pods that the kubelet may or may not still count."""
        return self.released_later(now).union(self.leaving)

    def ending(self, now: float) -> frozenset[str]:
        """Pods that are ending. Pods that take long to end count as running, and are left out."""
        recent = (uid for uid, at in self.leaving.items() if now < at + ENDING_SECONDS)
        return self.released_later(now).union(recent)

    def released_later(self, now: float) -> frozenset[str]:
        """Pods that have ended, and that the kubelet may count for some seconds more."""
        return frozenset([e.uid for e in self.events if isinstance(e, Release) and e.due > now])

    def next_due(self, now: float, assume_seconds: float) -> float | None:
        """The next time at which a timeout changes something; None if there is none."""
        times = [e.due for e in self.events if isinstance(e, Release) and e.due > now]
        times += [at + ENDING_SECONDS for at in self.leaving.values() if at + ENDING_SECONDS > now]
        times += [e.since + assume_seconds for e in self.events if isinstance(e, Admit) and not e.is_seen]
        return min(times, default=None)


EMPTY: Final = Ledger()


def apply(ledger: Ledger, event: PodEvent, now: float, *, finish_seconds: float) -> Ledger:
    """The ledger after the event. *finish_seconds*: how long a kubelet may still count a finished pod."""
    match event:
        case PodAssumed(pod=pod):
            return assume(ledger, pod, now)
        case PodForgotten(uid=uid):
            return forget(ledger, uid)
        case BindingInDoubt(uid=uid):
            return doubt(ledger, uid)
        case PodSeen(pod=pod, started=started, ordered=ordered, offered=offered):
            return see(ledger, pod, now, started=started, ordered=ordered, offered=offered)
        case MirrorSeen(pod=pod):
            return see_mirror(ledger, pod, now)
        case MirrorGone(uid=uid):
            return forget_mirrors(ledger, {uid})
        case PodRefused(uid=uid):
            return end(ledger, {uid}, now)
        case ContainerRefused() | PodUnread():
            return ledger
        case PodTerminating(uid=uid):
            return terminate(ledger, uid, now)
        case PodFinished(uid=uid):
            return leave(ledger, uid, now + finish_seconds)
        case PodGone(uid=uid):
            return leave(ledger, uid, now)
    assert_never(event)


def assume(ledger: Ledger, pod: Pod, now: float) -> Ledger:
    """We are about to bind the pod to the node."""
    ledger = forget_mirrors(ledger, {pod.uid})
    if _is_settled(ledger, pod.uid) or ledger.find(pod.uid) is not None:
        return ledger
    return replace(ledger, events=(*ledger.events, Admit(uid=pod.uid, pod=pod, since=now, is_ours=True)))


def forget(ledger: Ledger, uid: str) -> Ledger:
    """Remove the pod, because our binding failed. A pod that the watch has shown on its node stays."""
    return _without(ledger, lambda admit: admit.uid == uid and not admit.is_seen)


def doubt(ledger: Ledger, uid: str) -> Ledger:
    """Record that the outcome of our binding is not known. A pod that the watch has shown on its node stays bound."""
    known = ledger.find(uid)
    if known is None or known.binding is not BindingState.ASSUMED:
        return ledger
    return _instead(ledger, known, replace(known, binding=BindingState.IN_DOUBT))


def see(ledger: Ledger, pod: Pod, now: float, *, started: bool, ordered: bool = True, offered: bool = False) -> Ledger:
    """The watch shows the pod on the node, alive; see `PodSeen`."""
    ledger = forget_mirrors(ledger, {pod.uid})
    if _is_settled(ledger, pod.uid):
        return ledger
    known = ledger.find(pod.uid)
    started_at = now if started else None
    if known is None:
        seen = Admit(uid=pod.uid, pod=pod, since=now, binding=BindingState.SEEN, started_at=started_at, ordered=ordered)
        return _insert(ledger, replace(seen, is_ours=offered))
    if known.is_seen:
        if known.started_at is not None or not started:
            return ledger
        return _instead(ledger, known, replace(known, started_at=now))
    return _insert(ledger, replace(known, binding=BindingState.SEEN, started_at=started_at, ordered=ordered), known)


def see_mirror(ledger: Ledger, pod: Pod, now: float) -> Ledger:
    """The watch shows a mirror pod. A kubelet creates one after it has admitted the static pod."""
    if _is_settled(ledger, pod.uid) or ledger.find(pod.uid) is not None:
        return ledger
    admit = Admit(
        uid=pod.uid, pod=pod, since=now, binding=BindingState.SEEN, started_at=now, ordered=False, static=True
    )
    return _insert(ledger, admit)


def forget_mirrors(ledger: Ledger, uids: Collection[str]) -> Ledger:
    """Without the static pods among *uids* that no report has shown."""
    return _without(ledger, lambda admit: admit.static and admit.uid in uids) if uids else ledger


def terminate(ledger: Ledger, uid: str, now: float) -> Ledger:
    """The pod's deletion was requested: it is gone as soon as its containers have stopped."""
    if uid in ledger.leaving or uid in ledger.left:
        return ledger
    return replace(ledger, leaving={**ledger.leaving, uid: now})


def leave(ledger: Ledger, uid: str, due: float) -> Ledger:
    """The pod is gone, or is finished and no longer counted by the kubelet from *due* on."""
    if uid in ledger.left:
        return ledger
    ledger = replace(ledger, leaving=_others(ledger.leaving, {uid})) if uid in ledger.leaving else ledger
    for event in ledger.events:
        if isinstance(event, Release) and event.uid == uid:
            return _instead(ledger, event, replace(event, due=min(event.due, due)))
    return _insert(ledger, Release(uid=uid, due=due))


def confirm(ledger: Ledger, uids: Collection[str]) -> Ledger:
    """The report shows the resources of these pods."""
    ledger = _without(ledger, lambda admit: admit.uid in uids)
    return replace(ledger, resolved=ledger.resolved | (frozenset(uids) - ledger.left.keys()))


def end(ledger: Ledger, uids: Iterable[str], now: float) -> Ledger:
    """The kubelet knew these pods, and does not count them any more: the report says so, or it has refused them."""
    gone = set(uids) - ledger.left.keys()
    if not gone:
        return ledger
    events = tuple(e for e in ledger.events if e.uid not in gone)
    return replace(
        ledger,
        events=events,
        resolved=ledger.resolved - gone,
        left=_remembered(ledger.left, gone, now),
        leaving=_others(ledger.leaving, gone),
    )


def is_lost(admit: Admit, now: float, assume_seconds: float) -> bool:
    """Whether the pod was assumed too long ago, and the watch has not shown it."""
    return not admit.is_seen and now - admit.since >= assume_seconds


def expire(ledger: Ledger, held: Collection[str], now: float, *, assume_seconds: float) -> Ledger:
    """Drop pods that were assumed too long ago, and pods that left before the admission of every pod in flight.

    *held*: pods that the report still shows. These pods are never dropped.
    """
    ledger = _without(ledger, lambda admit: is_lost(admit, now, assume_seconds))
    ended = _ended(ledger.events, now)
    long_ago = takewhile(lambda item: now - item[1] > LEFT_REMEMBERED_SECONDS, ledger.left.items())
    old = {uid for uid, _ in long_ago if uid not in held}
    if old:
        ledger = replace(ledger, left=_others(ledger.left, old))
    return end(ledger, ended, now)


def trim(ledger: Ledger, now: float, *, assume_seconds: float, started_seconds: float) -> Ledger:
    """The ledger of a node that does not report, without pods whose admission is over for long.

    *started_seconds*: a report shows every pod that has been on the node for this long.
    """
    ledger = _without(ledger, lambda admit: is_denied(admit, (), now, started_seconds))
    old = {admit.uid for admit in ledger.admits if is_absent(admit, now, started_seconds)}
    return expire(confirm(ledger, old) if old else ledger, (), now, assume_seconds=assume_seconds)


def left_before(events: Sequence[Event], admit: Admit) -> frozenset[str]:
    """Pods that had certainly left when *admit*, one of *events*, was bound. They had no effect on its admission."""
    if not admit.ordered:
        return frozenset()
    earlier = takewhile(lambda event: event is not admit, events)
    return frozenset(e.uid for e in earlier if isinstance(e, Release) and e.due <= admit.since)


def _ended(events: tuple[Event, ...], now: float) -> frozenset[str]:
    """Pods that left before the admission of every pod that is still in flight."""
    ended = frozenset(e.uid for e in events if isinstance(e, Release) and e.due <= now)
    came = {e.uid: e for e in events if isinstance(e, Admit)}
    met_by = [e for e in came.values() if e.uid not in ended]
    while met_by and ended:
        admit = met_by.pop()
        met = ended - left_before(events, admit) - {admit.uid}
        ended -= met
        met_by += [came[uid] for uid in met if uid in came]
    return ended


def is_absent(admit: Admit, heard_at: float, absence_seconds: float) -> bool:
    """Whether it had run for so long at the node's last message that a report without it proves its absence."""
    return admit.started_at is not None and not admit.static and heard_at - admit.started_at >= absence_seconds


def is_ignored(admit: Admit, heard_at: float, running_since: float, absence_seconds: float) -> bool:
    """Whether a running kubelet has not started the pod for *absence_seconds*. It will not start it.

    *running_since*: when the kubelet started.
    """
    is_waiting = admit.is_seen and admit.started_at is None
    return is_waiting and max(admit.since, running_since) <= heard_at - absence_seconds


def is_denied(admit: Admit, listed: Collection[str], heard_at: float, mirror_seconds: float) -> bool:
    """Whether no report has shown a static pod for *mirror_seconds*, and the kubelet does not list it."""
    return admit.static and admit.uid not in listed and heard_at - admit.since >= mirror_seconds


def _is_settled(ledger: Ledger, uid: str) -> bool:
    """Whether the pod's admission is certainly over."""
    return (
        uid in ledger.resolved
        or uid in ledger.left
        or any(isinstance(e, Release) and e.uid == uid for e in ledger.events)
    )


def _others(times: Mapping[str, float], uids: Collection[str]) -> Mapping[str, float]:
    return {uid: at for uid, at in times.items() if uid not in uids}


def _remembered(left: Mapping[str, float], uids: Collection[str], now: float) -> Mapping[str, float]:
    """The last pods that left, with *uids*, none of which is in *left*."""
    every = {**left, **dict.fromkeys(uids, now)}
    return dict(islice(every.items(), max(0, len(every) - MAX_LEFT), None))


def _insert(ledger: Ledger, event: Event, known: Event | None = None) -> Ledger:
    """Insert an event of the watch before the pods that the watch has not shown yet. *known*: its former form."""
    others = tuple(e for e in ledger.events if e is not known)
    place = next((i for i, e in enumerate(others) if isinstance(e, Admit) and not e.is_seen), len(others))
    return replace(ledger, events=(*others[:place], event, *others[place:]))


def _instead(ledger: Ledger, old: Event, new: Event) -> Ledger:
    return replace(ledger, events=tuple(new if e is old else e for e in ledger.events))


def _without(ledger: Ledger, unwanted: Callable[[Admit], bool]) -> Ledger:
    kept = tuple(e for e in ledger.events if isinstance(e, Release) or not unwanted(e))
    return ledger if len(kept) == len(ledger.events) else replace(ledger, events=kept)
