"""All metric families of the service, in a registry of their own. Nothing is registered on import.

Rules of this file
- Label values come from fixed sets, never from input, so that callers cannot create series.
- Labels whose values are all known here (`known`) have every series from the start, at 0: `increase` of a series that
  is new does not see its first event. Series of predictions start at 0 when a node of their kind is scraped.
- A family answers a question of an operator, and its help explains the label values. A test compares this file with
  `docs/metrics.md`, which `python -m tests.docs.metrics_page` writes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from extender.identity import AccessScope, Means
from extender.kubelet.verdict import Certainty
from extender.scheduling.binder import BindFailure
from extender.scheduling.judgement import Trouble

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_VERBS: Final = ("filter", "prioritize", "preempt", "bind")
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """All metric families."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.build = Info("numa_extender_build", "The version that runs.", registry=self.registry)
        self.build.info({"version": version("numa-extender")})
        self._verbs()
        self._nodes()
        self._in_flight()
        self._callers()
        self._transport()
        self._leadership()
        self._questions()

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)

    def _verbs(self) -> None:
        self.verb_seconds = self._histogram(
            "verb_seconds",
            "Time from the first byte of a scheduler request to its reply. outcome: `answered`; `invalid`: malformed "
            "request; `unready`: try again later; `busy`: too many concurrent calls; `failed`: an internal error.",
            ("verb", "outcome"),
        )
        for call in product(_VERBS, ("answered", "invalid", "unready", "busy", "failed")):
            self.verb_seconds.labels(*call)
        self.phase_seconds = self._histogram(
            "phase_seconds",
            "Time of each phase: `read` the body, `parse` it, `judge` (replay what is not cached), `reply`: everything "
            "after `read` for bind and preempt.",
            ("verb", "phase"),
        )
        self.candidates = self._counter(
            "filter_candidates",
            "Candidate nodes of filter requests, by result (`passed`, or the reason of the refusal) and certainty.",
            ("result", "certainty"),
        )
        self.preemptions = self._counter(
            "preemption_candidates",
            "Candidate nodes of preempt requests, by result: `kept` as sent, `extended` with more victims, or dropped: "
            "`refused` (the kubelet would refuse the pod even then), `protected_victim` (its priority is not lower), "
            "`unknown_victim`, `nominated` (the pod waits for its nominated node), `undecided` (not enough time).",
            result=("kept", "extended", "refused", "protected_victim", "unknown_victim", "nominated", "undecided"),
        )
        self.judgements = self._counter("judgements", "Verdicts on classes of nodes: `replayed`.", source=("replayed",))
        self.unjudged = self._counter(
            "unjudged",
            "Replays that ended without a verdict, each for a pod shape and a class of nodes. The nodes count as "
            "unknown. `steps`: the replay took too many steps. `time`: the time limit of the call was reached during "
            "a long replay. `defect`: an internal error, which is logged.",
            trouble=Trouble,
        )
        self.loop_lag = self._histogram(
            "event_loop_lag_seconds", "How late the event loop is, measured ten times a second.", ()
        )
        self.loop_blocked = self._counter(
            "event_loop_blocked",
            "How often the event loop was late by half a second, by what it worked for: a `node`, a `pod`, or `other`. "
            "A log entry names it. What such a node changes to next is computed beside the event loop.",
            kind=("node", "pod", "other"),
        )
        self.changing_nodes = self._gauge(
            "changing_nodes", "Nodes whose possible states are being computed beside the event loop."
        )
        self.late_projections = self._counter(
            "late_projections",
            "Computations of the possible states of a node beside the event loop: `finished`, or `left_out`: too much "
            "is in flight to follow, so that no verdict on the node is certain. A log entry names the node.",
            outcome=("finished", "left_out"),
        )
        self.late_steps = self._counter(
            "late_projection_steps", "Steps of these computations, each about a microsecond of work."
        )
        self.remembered = self._gauge("remembered_judgements", "Cached verdicts and pod shapes.")

    def _nodes(self) -> None:
        self.reports = self._counter(
            "reports",
            "Messages of exporters (`report`, `heartbeat`) by result: `accepted`, `invalid`, `too_large`, `outdated`, "
            "`unknown`, `full`, `failed`.",
            kind=("report", "heartbeat"),
            outcome=("accepted", "invalid", "too_large", "outdated", "unknown", "full", "failed"),
        )
        self.nodes = self._gauge("nodes", "Nodes with a report, by certainty of their state.", ("certainty",))
        self.kubelets = self._gauge(
            "kubelets",
            "Nodes by minor version of the kubelet and certainty. `assumed`: newer than the newest known version.",
            ("minor", "certainty"),
        )
        self.silence = self._gauge(
            "node_silence_seconds",
            "Time since the last message of a node: median (`50`), `99`, and maximum (`100`). 0 without nodes.",
            ("percentile",),
        )
        self.classes = self._gauge("node_classes", "Node classes. Nodes of a class get the same verdicts.")

    def _in_flight(self) -> None:
        self.assumed = self._gauge("assumed_pods", "Pods bound and not yet confirmed by a report of their node.")
        self.predictions = self._counter(
            "predictions",
            "What the kubelet did compared with the prediction: `agreed`; `false_admit`: it refused a pod that was "
            "predicted to be admitted; `false_refusal`; `placement`: admitted elsewhere on the node; `other`: refused "
            "for a reason other than NUMA; `unsettled`: not known. By topology policy and scope, kubelet, certainty.",
            ("policy", "scope", "kubelet", "certainty", "outcome"),
        )
        self.demands = self._counter(
            "demands",
            "Bound pods that demand alignment, by where their kubelets placed them: `met`; `broken`: against the "
            "demand; `not_known`: gone before a report showed it.",
            result=("met", "broken", "not_known"),
        )
        self.behaviours = self._gauge(
            "kubelet_behaviours",
            "Nodes whose failed predictions agree if a rule of the replay is on (`value` true) or off (false).",
            ("rule", "value"),
        )
        self.score_only = self._gauge(
            "distrusted_nodes", "Nodes that are only scored, after too many wrong predictions."
        )
        self.left_out = self._gauge(
            "left_out_nodes", "Nodes that filter leaves out for a shape of pods, because their kubelets refused one."
        )
        self.groups = self._gauge(
            "groups",
            "Groups of pods: `single`: size unknown, judged pod by pod; `waiting`: does not fit, or rests; `holding`: "
            "places are held, and no pod is bound; `open`: some pods are bound; `placed`: all of them are, or were.",
            ("state",),
        )
        self.held_places = self._gauge("held_places", "Places that are held for pods of groups.")
        self.expired_groups = self._gauge(
            "expired_groups", "Groups whose places were given back because their time was over, since the start."
        )
        self.topology_faults = self._gauge(
            "unreadable_topologies", "NodeResourceTopology objects that cannot be read as a report of their node."
        )
        self.watch_silence = self._gauge(
            "watch_silence_seconds",
            "Time since the last progress of each watch of the API server. Bytes without an event are no progress.",
            ("watch",),
        )
        self.unread_objects = self._gauge(
            "unreadable_objects",
            "Objects of the API server that cannot be read and are skipped, by watch. The log names them.",
            ("watch",),
        )
        self.binds = self._counter(
            "binds",
            "Bind calls: `bound`; `unsure`: no reply from the API server; `refused`: the pod no longer fits; "
            "`unsettled`: deferred, because the end of another pod may change the result; `totals`: pods that have "
            "ended may still count; `claims`: it is not known yet which devices its claims have; `promised`: reserved "
            "for a nominated pod; `held`: held for a group; `group`: pods of its group are still to come, or do not "
            "fit; `starting`: the node's kubelet is stopped or has just started; `conflict`, `not_found`, "
            "`unknown_pod`, `unknown_node`, `busy`, `standby`, `no_access`, `away`, `invalid`, `unready`, `failed`.",
            outcome=("bound", "unsure", "invalid", "unready", *BindFailure),
        )

    def _callers(self) -> None:
        self.insecure = self._gauge("insecure", "1: started with `insecure`, so that every caller may do everything.")
        self.admissions = self._counter(
            "admissions",
            "Requests by means of authentication (`certificate`, `token`, `loopback`, `none`, `insecure`), the "
            "scope needed, and the outcome: `allowed`, `unauthenticated`, `forbidden`, `unavailable` (the API server "
            "could not be asked).",
            means=Means,
            scope=AccessScope,
            outcome=("allowed", "unauthenticated", "forbidden", "unavailable"),
        )
        self.reviews = self._counter(
            "reviews",
            "TokenReviews (`token`) and SubjectAccessReviews (`access`): `yes`, `no`, `failed`, or `grace`: failed "
            "while an earlier yes is still valid.",
            kind=("token", "access"),
            outcome=("yes", "no", "failed", "grace"),
        )
        self.limited = self._counter(
            "limited",
            "Requests and connections refused: `rate`, `concurrency` (concurrent requests), `body` (bytes in memory), "
            "`node` (another report of the node is being read), `head` (too long), `malformed` (answered with 400 "
            "before any route), `head_timeout`, `body_timeout`, `answer_timeout`, `pipelining`, `idle` (no request "
            "came), `connections` (closed to make room), `handshake` (TLS failed), `handshake_timeout`.",
            ("limit",),
        )
        self.responses = self._counter(
            "responses", "Responses by scope of the route and first digit of the status (`2xx`).", ("scope", "status")
        )

    def _transport(self) -> None:
        self.connections = self._gauge(
            "connections",
            "Open connections: `plain`, `tls`, or `handshake` (accepted on the TLS port, TLS not yet complete).",
            ("listener",),
        )
        self.accept_failures = self._counter(
            "accept_failures",
            "Connections that could not be accepted: out of file descriptors (`files`), out of `memory`, or `other`.",
            reason=("files", "memory", "other"),
        )
        self.certificate_loads = self._counter(
            "certificate_loads",
            "Certificate files read: `loaded`, or `failed` (the last good ones stay in use).",
            outcome=("loaded", "failed"),
        )
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds", "Expiry of the server certificate, Unix time. 0 without one."
        )

    def _leadership(self) -> None:
        self.leader = self._gauge("leader", "1: this process binds and requeues pods. Also 1 without a lease.")
        self.refused_pods = self._gauge("refused_pods", "Pods refused for now and recorded for requeueing.")
        self.janitor = self._counter(
            "janitor_pods",
            "Failed pods that kubelets refused for their topology: `deleted`, `would_delete` (dry run), `gone` "
            "(something else deleted them), or `failed`.",
            outcome=("deleted", "would_delete", "gone", "failed"),
        )
        self.pod_events = self._counter(
            "pod_events",
            "Events about pods that fit on no node: `written`, or `failed`.",
            outcome=("written", "failed"),
        )
        self.wake_ups = self._counter(
            "wake_ups",
            "Nodes on which a refused pod would fit now: `touched` to requeue it, `limited`, or `failed`.",
            outcome=("touched", "limited", "failed"),
        )

    def _questions(self) -> None:
        self.questions_now = self._gauge(
            "questions_now", "Questions now: `working` in a worker, or `waiting` for one.", ("state",)
        )
        self.questions = self._counter(
            "questions",
            "Questions by result: `answered`; `invalid`: malformed, or about a node without a report; `time_limit`; "
            "`memory_limit`; `client_left`; `refused`: too many were waiting; `queue_time`: no worker was free in "
            "time; `worker_died`; `failed`: an internal error.",
            ("kind", "outcome"),
        )
        self.question_seconds = self._histogram(
            "question_seconds",
            "Time from a complete question to the end of its reply, including time in the queue.",
            ("kind",),
            (*_SECONDS[4:], 10.0, 30.0, 60.0),
        )

    def replayed(self, count: int) -> None:
        """Count classes that were judged by replay."""
        self.judgements.labels("replayed").inc(count)

    def changing(self, nodes: int) -> None:
        """Show how many nodes wait for their projection."""
        self.changing_nodes.set(nodes)

    def projected_late(self, steps: int, *, is_left_out: bool) -> None:
        """Count a projection that took *steps*, or reached the limit (*is_left_out*)."""
        self.late_projections.labels("left_out" if is_left_out else "finished").inc()
        self.late_steps.inc(steps)

    def not_judged(self, trouble: Trouble) -> None:
        """Count a class that could not be judged."""
        self.unjudged.labels(trouble.value).inc()

    def filtered(self, counts: Mapping[tuple[str, Certainty], int]) -> None:
        """Count the candidates of a filter call by result and certainty."""
        for (result, certainty), count in counts.items():
            self.candidates.labels(result, certainty.value).inc(count)

    def _counter(self, name: str, text: str, labels: Sequence[str] = (), **known: Iterable[str]) -> Counter:
        family = Counter(f"numa_extender_{name}", text, labels or [*known], registry=self.registry)
        for values in product(*known.values()) if known else ():
            family.labels(*values)
        return family

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"numa_extender_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(f"numa_extender_{name}", text, labels, registry=self.registry, buckets=buckets)


class Stopwatch:
    """Measures the phases of one call of *verb*. Each `lap` ends the phase that it names. *clock*: seconds."""

    def __init__(self, seconds: Histogram, verb: str, clock: Callable[[], float]) -> None:
        self._seconds, self._verb, self._clock = seconds, verb, clock
        self._at = clock()

    def lap(self, phase: str) -> None:
        """End the phase that began with the last lap."""
        now = self._clock()
        self._seconds.labels(self._verb, phase).observe(now - self._at)
        self._at = now
