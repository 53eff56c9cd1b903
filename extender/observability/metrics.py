"""All metric families of the service, in one registry of their own (nothing is registered on import).

Laws of this file
- Label values come from closed sets, never from input: what a caller sends can make no new series.
- A family answers a question that an operator asks; its help says which values mean what. `docs/metrics.md` is this
  file as a table: `python -m extender.observability.metrics` writes it, and a test compares.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


F = TypeVar("F", Counter, Gauge, Histogram)


class Series(dict[tuple[str, ...], F]):
    """The series of one family by their labels, where each request counts: a lookup, and the library's own way once."""

    def __init__(self, family: F) -> None:
        super().__init__()
        self._family: F = family

    def __missing__(self, labels: tuple[str, ...]) -> F:
        found: F = self._family.labels(*labels)
        self[labels] = found
        return found


class Metrics:
    """The families."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self._families: Final[list[tuple[Counter | Gauge | Histogram, tuple[str, ...]]]] = []
        self._verbs()
        self._nodes()
        self._in_flight()
        self._callers()
        self._transport()
        self._duties()
        self._questions()
        self.verb_series: Final = Series(self.verb_seconds)
        self.phase_series: Final = Series(self.phase_seconds)
        self.candidate_series: Final = Series(self.candidates)
        self.admission_series: Final = Series(self.admissions)
        self.response_series: Final = Series(self.responses)

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)

    def reference(self) -> list[tuple[str, str, tuple[str, ...], str]]:
        """Name as scraped, type, labels and help of every family, in the order of this file."""
        rows = []
        for metric, labels in self._families:
            family = next(iter(metric.describe()))
            name = family.name + ("_total" if family.type == "counter" else "")
            rows.append((name, family.type, labels, family.documentation))
        return rows

    def _verbs(self) -> None:
        self.verb_seconds = self._histogram(
            "verb_seconds",
            "Time from the first byte of a scheduler request to its reply. outcome: `answered`; `invalid`: not "
            "understood; `unready`: not now; `busy`: over the bound of calls at once; `failed`: a defect.",
            ("verb", "outcome"),
        )
        self.phase_seconds = self._histogram(
            "phase_seconds",
            "The parts of it: `read` the body, `parse` it, `judge` (replaying what is not remembered), `reply`.",
            ("verb", "phase"),
        )
        self.candidates = self._counter(
            "filter_candidates",
            "Candidate nodes of filter requests, by what became of them (`passed`, or the reason) and certainty.",
            ("result", "certainty"),
        )
        self.preemptions = self._counter(
            "preemption_candidates",
            "Candidate nodes of preempt requests, by what became of them: `kept` as asked, `extended` with further "
            "victims, or dropped: `refused` (the kubelet would refuse the pod even then), `protected_victim` (its "
            "priority is not lower), `unknown_victim`, `nominated` (the pod waits for its nominated node), "
            "`undecided` (no time left).",
            ("result",),
        )
        self.judgements = self._counter(
            "judgements", "Classes of nodes looked at: `remembered`, or `replayed` now.", ("source",)
        )
        self.unjudged = self._counter(
            "unjudged",
            "Judgements that ended without an answer, each for a pod shape and a class of nodes; the nodes count as "
            "unknown. `steps`: the replay takes more steps than that of any sane node. `time`: the time of the call "
            "was over during a long replay. `defect`: an exception, which is in the log.",
            ("trouble",),
        )
        self.remembered = self._gauge("remembered_judgements", "Judgements and pod shapes remembered.")

    def _nodes(self) -> None:
        self.reports = self._counter(
            "reports",
            "Messages of exporters: `report` or `heartbeat`, and `accepted`, `invalid`, `too_large`, `outdated`, "
            "`unknown`, `full`, `failed`.",
            ("kind", "outcome"),
        )
        self.nodes = self._gauge("nodes", "Nodes held, by certainty of their state.", ("certainty",))
        self.kubelets = self._gauge(
            "kubelets",
            "Nodes held, by the minor version of their kubelet and certainty. `assumed`: newer than the newest known.",
            ("minor", "certainty"),
        )
        self.silence = self._gauge(
            "node_silence_seconds",
            "Time since nodes were last heard of: median (`0.5`), `0.99`, and the longest (`1`). 0 without nodes.",
            ("quantile",),
        )
        self.classes = self._gauge("node_classes", "Different nodes, as far as verdicts go.")

    def _in_flight(self) -> None:
        self.assumed = self._gauge("assumed_pods", "Pods bound and not yet confirmed by a report of their node.")
        self.predictions = self._counter(
            "predictions",
            "What was foretold of a pod and what the kubelet did: `agreed`, `false_admit` (it refused a pod foretold "
            "to be admitted), `false_refusal`, `placement` (admitted elsewhere on the node), `other` (refused, for "
            "other reasons than NUMA), `unsettled` (never learned). By topology policy and scope, kubelet, certainty.",
            ("policy", "scope", "kubelet", "certainty", "outcome"),
        )
        self.distrusted = self._gauge("distrusted_nodes", "Nodes that only rank, after too many disagreements.")
        self.topology_faults = self._gauge(
            "unreadable_topologies", "NodeResourceTopology objects that could not be taken for what their node is."
        )
        self.binds = self._counter(
            "binds",
            "Bind calls: `bound`, `unsure` (no answer of the API server), `refused` (no longer fits), `unsettled` "
            "(what else happens on the node decides: held back), `totals` (pods that have ended may still "
            "count), `promised` (the room is kept for a nominated pod), `starting` (the node's kubelet is stopped or "
            "has just started), `conflict`, `not_found`, `unknown_pod`, "
            "`unknown_node`, `busy`, `standby`, `no_access`, `invalid`, `failed`.",
            ("outcome",),
        )

    def _callers(self) -> None:
        self.insecure = self._gauge("insecure", "1: started with `insecure`, everybody may do everything.")
        self.admissions = self._counter(
            "admissions",
            "Requests by how the caller proved who it is (`certificate`, `token`, `loopback`, `none`, `insecure`), the "
            "scope needed, and the outcome: `allowed`, `unauthenticated`, `forbidden`, `unavailable` (the API server "
            "could not be asked).",
            ("means", "scope", "outcome"),
        )
        self.reviews = self._counter(
            "reviews",
            "Questions to the API server: `token` or `access`; `yes`, `no`, `failed`, or `grace`: failed, and an "
            "earlier yes still holds.",
            ("kind", "outcome"),
        )
        self.limited = self._counter(
            "limited",
            "Requests and connections turned away: `rate`, `concurrency` (requests at once), `body` (bytes in memory), "
            "`head` (too long), `head_timeout`, `body_timeout`, `answer_timeout`, `pipelining`, `idle` (no request "
            "came), `connections` (closed to make room), `handshake` (TLS that failed), `handshake_timeout`.",
            ("limit",),
        )
        self.responses = self._counter(
            "responses", "Responses by scope of the route and first digit of the status (`2xx`).", ("scope", "status")
        )

    def _transport(self) -> None:
        self.connections = self._gauge(
            "connections",
            "Connections open now: `plain`, `tls`, or `handshake`: accepted on the TLS port, and not yet `tls`.",
            ("listener",),
        )
        self.accept_failures = self._counter(
            "accept_failures",
            "Connections that could not be accepted: no file descriptor was left (`files`), no `memory`, or `other`.",
            ("reason",),
        )
        self.certificate_loads = self._counter(
            "certificate_loads",
            "Certificate files read: `loaded`, or `failed` (the last good ones stay).",
            ("outcome",),
        )
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds", "When our own certificate ends, Unix time; 0 without one."
        )

    def _duties(self) -> None:
        self.leader = self._gauge("leader", "1: this process writes (binds, wakes pods). Also 1 without a lease.")
        self.refused_pods = self._gauge("refused_pods", "Pods refused `not now` and remembered for waking up.")
        self.wake_ups = self._counter(
            "wake_ups",
            "Nodes on which a refused pod would fit now: `touched` to wake it, `limited`, or `failed`.",
            ("outcome",),
        )

    def _questions(self) -> None:
        self.questions_now = self._gauge(
            "questions_now", "People's questions now: `working` in a worker, or `waiting` for one.", ("state",)
        )
        self.questions = self._counter(
            "questions",
            "People's questions by how they ended: `answered`; `invalid`: not understood, or about a node that is not "
            "held; `time_limit`; `memory_limit`; `client_left`; `refused`: too many waited; `queue_time`: no worker "
            "was free in time; `worker_died`; `failed`: a defect.",
            ("kind", "outcome"),
        )
        self.question_seconds = self._add(
            Histogram(
                "numa_extender_question_seconds",
                "Time from a whole question to the end of its answer, waiting included.",
                ("kind",),
                registry=self.registry,
                buckets=(*_SECONDS[4:], 10.0, 30.0, 60.0),
            ),
            ("kind",),
        )

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return self._add(Counter(f"numa_extender_{name}", text, labels, registry=self.registry), labels)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return self._add(Gauge(f"numa_extender_{name}", text, labels, registry=self.registry), labels)

    def _histogram(self, name: str, text: str, labels: Sequence[str] = ()) -> Histogram:
        family = Histogram(f"numa_extender_{name}", text, labels, registry=self.registry, buckets=_SECONDS)
        return self._add(family, labels)

    def _add(self, family: F, labels: Sequence[str]) -> F:
        self._families.append((family, tuple(labels)))
        return family


class Stopwatch:
    """Times the phases of one call of *verb*: each `lap` ends the phase that it names. *clock*: seconds."""

    def __init__(self, series: Series[Histogram], verb: str, clock: Callable[[], float]) -> None:
        self._series, self._verb, self._clock = series, verb, clock
        self._at = clock()

    def lap(self, phase: str) -> None:
        """The phase that began with the last lap ends."""
        now = self._clock()
        self._series[self._verb, phase].observe(now - self._at)
        self._at = now


def reference_page() -> str:
    """`docs/metrics.md`."""
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for name, kind, labels, text in Metrics().reference()
    ]
    return "\n".join((*_PAGE, *rows, ""))


_PAGE: Final = (
    "# Metrics of the extender",
    "",
    "Scraped at `/metrics`. Written by `python -m extender.observability.metrics`; a test compares it with the code.",
    "",
    "| family | type | labels | what it tells |",
    "|---|---|---|---|",
)

if __name__ == "__main__":
    sys.stdout.write(reference_page())
