"""Leader election among several processes, with a coordination.k8s.io Lease.

`decide` is the whole rule, as a pure function. Clocks of machines are never compared: a candidate measures itself how
long it has seen the lease unchanged. The leader stops leading (`Elector.leads`) `renew_seconds` after its last
successful renewal *began*, which is before any other candidate may take over.

Clocks may run at different speeds, up to the ratio duration : renew (3 : 2 in client-go). The leader counts
`renew_seconds` from the begin of its renewal, and every other candidate `duration_seconds` from when it saw the
renewal, which is later. A write that takes time is sent only if it ends within the leadership (`leads_for`), so the
whole ratio is left for the clocks.

A silent leader is replaced `duration_seconds` after a standby has seen its last renewal: a standby reads the lease
every `retry_seconds`, and when the lease ends. Calls to the API server: the leader sends one PUT per `retry_seconds`
(it reads only after a conflict), a standby one GET.

Every write carries the resourceVersion it was based on, so that one of two candidates gets 409.

RBAC: `get`, `create`, `update` on leases, in one namespace.
"""

import logging
import random as _random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import ApiError, KubeError
from extender.kube.objects import integer, mapping, strings, text
from extender.observability.logs import FaultLog

URL_ANNOTATION: Final = "numa-extender/leader-url"
JITTER: Final = 0.2
"""Reads are `retry_seconds` apart, plus or minus this share, so that candidates do not act at the same time."""
_BASE: Final = "/apis/coordination.k8s.io/v1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """`identity`: different for each process, also for one that restarts in place.

    `duration_seconds`: how long others wait for a silent leader. `renew_seconds`: how long a leader leads without
    renewal. `retry_seconds`: between two reads, and the time limit of each call. duration > renew > retry, or
    ValueError. The defaults have client-go's ratio of duration and renew. `url`: where others reach this process while
    it leads, written into the lease as an annotation; empty: not reachable.
    """

    namespace: str
    name: str
    identity: str
    duration_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 1.5
    url: str = ""

    def __post_init__(self) -> None:
        if not self.duration_seconds > self.renew_seconds > self.retry_seconds > 0:
            raise ValueError("a lease needs duration_seconds > renew_seconds > retry_seconds > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLease:
    """A lease as read. `holder`: empty if it has no holder. `since`: our clock when it last changed."""

    holder: str
    duration_seconds: int
    version: str
    since: float


class LeaseStep(Enum):
    """What a candidate does to the lease. `TAKE`: it has no holder or has expired; this is one more transition."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"


def decide(observed: ObservedLease | None, *, identity: str, now: float) -> LeaseStep | float:
    """The next action of a candidate. *now*: the clock of `ObservedLease.since`.

    A number: another candidate holds the lease, for at least this many seconds.
    """
    if observed is None:
        return LeaseStep.CREATE
    if observed.holder == identity:
        return LeaseStep.RENEW
    left = observed.since + observed.duration_seconds - now
    return LeaseStep.TAKE if not observed.holder or left <= 0 else left


class Elector:
    """A candidate, in a daemon thread from `start` to `stop`. *clock*: monotonic seconds; *wall*: Unix seconds."""

    def __init__(
        self,
        client: Requester,
        settings: LeaseSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client, self._settings = client, settings
        self._clock, self._wall, self._random = clock, wall, random
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._stop = threading.Event()
        self._observed: ObservedLease | None = None
        self._lease: Mapping[str, Any] = {}
        self._leads_until = float("-inf")
        self._term = -1
        self._faults = FaultLog(_log, f"lease {settings.name}", clock)

    @property
    def leads(self) -> bool:
        """Whether this process is the leader now. Becomes False by itself if renewals fail or hang."""
        return self.leads_for(0.0)

    def leads_for(self, seconds: float) -> bool:
        """Whether this process will still be the leader in *seconds*, even if no further renewal succeeds."""
        return self._clock() + seconds < self._leads_until

    def obstacle(self, seconds: float) -> str | None:
        """Why a write that takes up to *seconds* must not start now; None if it may."""
        if not self.leads:
            return f"this extender stands by; the leader is {self.holder or 'not known yet'}"
        if not self.leads_for(seconds):
            return "the lease is not renewed: the API server does not answer in time"
        return None

    @property
    def term(self) -> int:
        """Grows with each change of leader: writes with an older term are from a former leader."""
        return max(0, self._term)

    @property
    def holder(self) -> str:
        """The current holder of the lease as last seen. Empty if there is none."""
        return "" if self._observed is None else self._observed.holder

    @property
    def leader_url(self) -> str:
        """The leader's URL. Empty if there is no leader, if this process leads, or if the leader published none."""
        if not self.holder or self.holder == self._settings.identity or self.leads:
            return ""
        return strings(mapping(self._lease, "metadata"), "annotations").get(URL_ANNOTATION, "")

    def start(self) -> None:
        """Start taking part in the election. Returns at once."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Stop, and release the lease if we hold it, so that the next leader need not wait."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def step(self) -> float:
        """Act once. Returns the longest time in seconds until the next call.

        Raises:
            KubeError: a call failed. A leadership gained before lasts as long as it would have.
        """
        began = self._clock()
        if not (self.leads and self._renewed()):
            self._read()
            step = decide(self._observed, identity=self._settings.identity, now=self._clock())
            if not isinstance(step, LeaseStep):
                self._leads_until = float("-inf")
                return min(step, self._pause())
            is_new = step is not LeaseStep.RENEW
            spec = self._spec(transitions=self._term + is_new, acquired=is_new)
            self._write("POST" if step is LeaseStep.CREATE else "PUT", spec)
        if not self.leads:
            _log.info("%s leads %s, term %d", self._settings.identity, self._settings.name, self.term)
        self._leads_until = began + self._settings.renew_seconds
        return self._pause()

    def _renewed(self) -> bool:
        """Renew without a read. Returns whether the lease was still as we last wrote it."""
        try:
            self._write("PUT", self._spec(transitions=self._term, acquired=False))
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        return True

    def _pause(self) -> float:
        return self._settings.retry_seconds * (1.0 - JITTER + 2.0 * JITTER * self._random())

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = self._pause()
            try:
                pause = self.step()
                self._faults.ended()
            except KubeError as error:
                self._faults.failed("%s", error)
            self._stop.wait(pause)
        self._release()

    def _release(self) -> None:
        if not self.leads:
            return
        self._leads_until = float("-inf")
        try:
            spec = self._spec(transitions=self.term, acquired=False)
            self._write("PUT", {**spec, "holderIdentity": "", "leaseDurationSeconds": 1})
        except KubeError as error:
            _log.warning("lease %s could not be released: %s", self._settings.name, error)

    def _read(self) -> None:
        settings = self._settings
        path = path_of(_BASE, "leases", namespace=settings.namespace, name=settings.name)
        try:
            lease = self._client.request("GET", path, timeout_seconds=settings.retry_seconds)
        except ApiError as error:
            if error.status != 404:
                raise
            self._lease, self._observed = {}, None
            return
        self._note(lease)

    def _note(self, lease: Mapping[str, Any]) -> None:
        spec, version = mapping(lease, "spec"), text(mapping(lease, "metadata"), "resourceVersion")
        before = self._observed
        since = before.since if before is not None and before.version == version else self._clock()
        self._lease = lease
        self._term = max(self._term, integer(spec, "leaseTransitions"))
        self._observed = ObservedLease(
            holder=text(spec, "holderIdentity"),
            duration_seconds=integer(spec, "leaseDurationSeconds", self._settings.duration_seconds),
            version=version,
            since=since,
        )

    def _spec(self, *, transitions: int, acquired: bool) -> JSON:
        now = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec: JSON = {
            **mapping(self._lease, "spec"),
            "holderIdentity": self._settings.identity,
            "leaseDurationSeconds": self._settings.duration_seconds,
            "leaseTransitions": transitions,
            "renewTime": now,
        }
        return {**spec, "acquireTime": now} if acquired else spec

    def _write(self, method: str, spec: JSON) -> None:
        settings = self._settings
        name = "" if method == "POST" else settings.name
        metadata = {**mapping(self._lease, "metadata"), "name": settings.name, "namespace": settings.namespace}
        others = {k: v for k, v in strings(metadata, "annotations").items() if k != URL_ANNOTATION}
        metadata["annotations"] = others | ({URL_ANNOTATION: settings.url} if settings.url else {})
        body: JSON = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        path = path_of(_BASE, "leases", namespace=settings.namespace, name=name)
        self._note(self._client.request(method, path, body=body, timeout_seconds=settings.retry_seconds))
