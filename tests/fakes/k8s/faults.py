"""What can be made to go wrong. All knobs may be turned from any thread while the server runs."""

import threading
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from tests.fakes.k8s.resources import ApiProblem

_REASONS = {
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
Drop = Literal["before", "after"]


@dataclass(slots=True)
class Rule:
    """The next `times` calls that match fail. Empty `verb` or `resource` (a plural) matches any.

    `drop` closes the connection instead of answering: before the call is carried out, or after.
    """

    times: int
    status: int = 0
    verb: str = ""
    resource: str = ""
    retry_after: int | None = None
    drop: Drop | None = None

    def matches(self, verb: str, resource: str) -> bool:
        return self.times > 0 and self.verb in ("", verb) and self.resource in ("", resource)


@dataclass(slots=True)
class Faults:
    """The knobs. Times are seconds.

    `latency`: added before every answer. `cut_chance`: per watch event, the chance that the stream breaks in the middle
    of its line. `trickle_bytes`: streams are sent in pieces of that many bytes (0: whole), `trickle_delay` apart.
    `mute_streams`: watches are accepted and then say nothing, not even a bookmark.
    """

    latency: float = 0.0
    cut_chance: float = 0.0
    trickle_bytes: int = 0
    trickle_delay: float = 0.0
    mute_streams: bool = False
    random: Random = field(default_factory=lambda: Random(0))
    _rules: list[Rule] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(
        self, times: int, status: int, *, verb: str = "", resource: str = "", retry_after: int | None = None
    ) -> None:
        """Answer the next *times* matching calls with *status*."""
        with self._lock:
            self._rules.append(Rule(times, status, verb, resource, retry_after))

    def drop(self, times: int, when: Drop, *, verb: str = "", resource: str = "") -> None:
        """Hang up on the next *times* matching calls, before or after carrying them out."""
        with self._lock:
            self._rules.append(Rule(times, verb=verb, resource=resource, drop=when))

    def clear(self) -> None:
        """Everything works again."""
        with self._lock:
            self._rules.clear()
        self.latency = self.cut_chance = self.trickle_delay = 0.0
        self.trickle_bytes, self.mute_streams = 0, False

    def take(self, verb: str, resource: str) -> Drop | None:
        """Use up one matching rule: raises its status, or returns when to hang up."""
        with self._lock:
            rule = next((r for r in self._rules if r.matches(verb, resource)), None)
            if rule is None:
                return None
            rule.times -= 1
            self._rules = [r for r in self._rules if r.times > 0]
        if rule.drop:
            return rule.drop
        reason = _REASONS.get(rule.status, "InternalError")
        raise ApiProblem(rule.status, reason, f"scripted failure {rule.status}", retry_after=rule.retry_after)

    def cuts(self) -> bool:
        """Whether the stream breaks at this event."""
        return self.cut_chance > 0 and self.random.random() < self.cut_chance
