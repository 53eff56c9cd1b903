"""The loop that keeps an extender up to date: observe, compare, send, wait.

Rules of this file
- One thread observes and sends. Changes only set a flag, so nothing can queue up: every message is based on an
  observation made after the last change, and after a failure the node is observed again.
- Unchanged content is sent as a heartbeat, and only when one is due. The extender has a report once it has accepted it.
- Failures back off exponentially with full jitter (tenacity). Changes do not shorten the wait, except after a refusal,
  where different content may be accepted.
- Durations use the monotonic clock. The wall clock only stamps reports.
"""

import hashlib
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Protocol

import orjson
from tenacity import RetryCallState, Retrying, retry_if_not_result, stop_when_event_set, wait_random_exponential

from node_exporter.metrics import ExporterMetrics
from node_exporter.report import Heartbeat, NodeReport
from node_exporter.sinks import Delivery, Reply, Sink

LOG = logging.getLogger(__name__)

JITTER = 0.1
FAILURE_LOG_SECONDS = 600.0
"""A lasting failure is logged again after this time; a different reason after at least a tenth of it."""
LONGEST_RETRY_AFTER_SECONDS = 300.0
NEVER_COMPARED = frozenset({"sequence", "observed_at", "schema_version", "state", "zones"})
MAX_CHANGES = 6


class Look(Protocol):
    """Observes the node. `is_tick`: a regular observation, which may read slowly changing sources again."""

    def __call__(self, *, is_tick: bool) -> NodeReport:
        """Return the current state. The agent fills in sequence and time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """When to send. All values in seconds."""

    interval: float = 30.0
    """The time between two messages while nothing changes. Each is shifted by up to a tenth at random."""
    spacing: float = 0.2
    """Minimum time between two observations, so that frequent changes cost a limited number of reports."""
    longest_backoff: float = 60.0


@dataclass(frozen=True, slots=True)
class _Held:
    """The report that the extender has, and the digest of its body."""

    report: NodeReport
    digest: str


class Agent:
    """Sends the state of one node to one sink until stopped."""

    def __init__(
        self,
        look: Look,
        sink: Sink,
        metrics: ExporterMetrics,
        cadence: Cadence,
        seconds_to_next_look: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self._look = look
        self._seconds_to_next_look = seconds_to_next_look
        self._sink = sink
        self._metrics = metrics
        self._cadence = cadence
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._held: _Held | None = None
        self._sequence = 0
        self._heartbeat_due = 0.0
        self._last_look = float("-inf")
        self._last_outcome: Delivery | None = None
        self._failures = _Failures()
        self.alive_at = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """Whether the last message was accepted."""
        return self._last_outcome is Delivery.ACCEPTED

    @property
    def seconds_since_alive(self) -> float:
        """Seconds since the last iteration of the loop.

        More than the interval and the longest back-off means that it hangs.
        """
        return time.monotonic() - self.alive_at

    def notice_change(self) -> None:
        """Request an observation soon. Cheap, and safe from any thread."""
        self._wake.set()

    def stop(self) -> None:
        """End `run` once the current message is answered."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Send reports and heartbeats until `stop`."""
        retrying = Retrying(
            retry=retry_if_not_result(lambda reply: reply.outcome is Delivery.ACCEPTED),
            wait=self._backoff,
            sleep=self._sleep,
            stop=stop_when_event_set(self._stop),
            retry_error_callback=lambda _state: None,
        )
        while not self._stop.is_set():
            retrying(self.publish)
            self._wake.wait(max(0.0, min(self._heartbeat_due - time.monotonic(), self._seconds_to_next_look())))
            self._stop.wait(max(0.0, self._last_look + self._cadence.spacing - time.monotonic()))

    def publish(self) -> Reply:
        """Observe once and send what is due. Every error becomes a Reply."""
        self.alive_at = time.monotonic()
        self._wake.clear()
        try:
            reply = self._publish()
        except Exception as error:  # last resort: a bug must not end reporting
            LOG.exception("look failed")
            self._metrics.look_failures.inc()
            reply = Reply(outcome=Delivery.UNAVAILABLE, detail=f"internal error: {type(error).__name__}")
        self._failures.log(reply)
        self._last_outcome = reply.outcome
        return reply

    def _publish(self) -> Reply:
        is_tick = time.monotonic() >= self._heartbeat_due
        with self._metrics.look_seconds.time():
            content = self._look(is_tick=is_tick)
        self._last_look = time.monotonic()
        self._metrics.count_problems(content)
        held = self._held
        if held is None or held.report != replace(
            content, sequence=held.report.sequence, observed_at=held.report.observed_at
        ):
            return self._send_report(content)
        if not is_tick:
            return Reply(outcome=Delivery.ACCEPTED)
        reply = self._send_heartbeat(held)
        if reply.outcome is Delivery.WANTS_REPORT:
            LOG.info("the receiver requests the full report detail=%r", reply.detail)
            self._held = None
            return self._send_report(content)
        return reply

    def _send_report(self, content: NodeReport) -> Reply:
        self._sequence = next_sequence(self._sequence)
        report = replace(content, sequence=self._sequence, observed_at=time.time())
        body = orjson.dumps(report)
        before = self._held.report if self._held else None
        reply = self._sent("report", partial(self._sink.put_report, report), body)
        if reply.outcome is Delivery.ACCEPTED:
            self._held = _Held(report, hashlib.sha256(body).hexdigest())
            self._metrics.sequence.set(report.sequence)
            LOG.info(
                "published node=%s sequence=%d bytes=%d problems=%d changed=%r",
                report.node_name, report.sequence, reply.sent_bytes, len(report.problems),
                describe_changes(before, report),
            )  # fmt: skip
        return reply

    def _send_heartbeat(self, held: _Held) -> Reply:
        heartbeat = Heartbeat(
            boot_id=held.report.boot_id,
            sequence=held.report.sequence,
            digest=held.digest,
            observed_at=time.time(),
        )
        return self._sent("heartbeat", self._sink.post_heartbeat, orjson.dumps(heartbeat))

    def _sent(self, kind: str, send: Callable[[bytes], Reply], body: bytes) -> Reply:
        reply = send(body)
        self._metrics.messages.labels(kind, reply.outcome.value).inc()
        self._metrics.bytes_sent.labels(kind).inc(reply.sent_bytes)
        if reply.outcome is Delivery.ACCEPTED:
            self._metrics.last_contact.set_to_current_time()
            jitter = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - spreads load, hides nothing
            self._heartbeat_due = time.monotonic() + self._cadence.interval * jitter
        return reply

    def _backoff(self, state: RetryCallState) -> float:
        full_jitter = wait_random_exponential(multiplier=1, max=self._cadence.longest_backoff)(state)
        reply = state.outcome.result() if state.outcome else None
        asked = (reply.retry_after_seconds if reply else None) or 0.0
        return max(full_jitter, min(asked, LONGEST_RETRY_AFTER_SECONDS))

    def _sleep(self, seconds: float) -> None:
        """Wait for the back-off. After a refusal, a change ends the wait."""
        LOG.debug("waiting seconds=%.1f", seconds)
        self.alive_at = time.monotonic() + seconds
        (self._wake if self._last_outcome is Delivery.REFUSED else self._stop).wait(seconds)


class _Failures:
    """Logs when publishing begins to fail, when it works again, and from time to time in between."""

    def __init__(self) -> None:
        self._count = 0
        self._began_at = self._logged_at = 0.0
        self._logged: tuple[Delivery, str] | None = None

    def log(self, reply: Reply) -> None:
        now, what = time.monotonic(), (reply.outcome, reply.detail)
        if reply.outcome is Delivery.ACCEPTED:
            if self._count > 1:
                LOG.info("publishing works again failures=%d seconds=%.0f", self._count, now - self._began_at)
            self._count, self._logged = 0, None
            return
        self._count += 1
        if self._count == 1:
            self._began_at = now
        wait = FAILURE_LOG_SECONDS if what == self._logged else FAILURE_LOG_SECONDS / 10
        level = logging.WARNING if self._logged is None or now - self._logged_at >= wait else logging.DEBUG
        if level == logging.WARNING:
            self._logged, self._logged_at = what, now
        LOG.log(level, "publishing failed outcome=%s detail=%r failures=%d", *(what[0].value, what[1], self._count))


def next_sequence(last: int) -> int:
    """A number above `last`: milliseconds since boot, including suspended time, or `last` + 1.

    No state needs to be stored: a restarted exporter starts above everything that its predecessor sent.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return max(last + 1, time.clock_gettime_ns(clock) // 1_000_000)


def describe_changes(before: NodeReport | None, after: NodeReport) -> str:
    """Name containers that gained or lost CPUs or memory, and the parts of the report that differ.

    For example "cpu +pod-002/c0:12,60, cpu -pod-001/c0:1-4, pods". For the first report it is "first".
    """
    if before is None:
        return "first"
    found = [*_container_changes(before, after)]
    parts = [item.name for item in fields(NodeReport) if item.name not in NEVER_COMPARED]
    found += [name for name in parts if getattr(before, name) != getattr(after, name)]
    if not found and before.state != after.state:
        found = ["state"]
    more = f" and {len(found) - MAX_CHANGES} more" if len(found) > MAX_CHANGES else ""
    return ", ".join(found[:MAX_CHANGES]) + more if found else "nothing"


def _container_changes(before: NodeReport, after: NodeReport) -> Iterator[str]:
    for kind, name in (("cpu", "cpu_manager_state"), ("memory", "memory_manager_state")):
        old, new = _entries(getattr(before.state, name)), _entries(getattr(after.state, name))
        for key in sorted(new.keys() - old.keys()):
            yield f"{kind} +{key}{':' + str(new[key]) if kind == 'cpu' else ''}"
        for key in sorted(old.keys() - new.keys()):
            yield f"{kind} -{key}{':' + str(old[key]) if kind == 'cpu' else ''}"
        for key in sorted(key for key in new.keys() & old.keys() if new[key] != old[key]):
            yield f"{kind} ~{key}"


def _entries(document: object) -> dict[str, object]:
    """Assignments by "pod/container"; empty if the document is missing or of an unexpected shape."""
    entries = document.get("entries") if isinstance(document, Mapping) else None
    if not isinstance(entries, Mapping):
        return {}
    return {
        f"{uid}/{container}": value
        for uid, containers in entries.items()
        if isinstance(containers, Mapping)
        for container, value in containers.items()
    }
