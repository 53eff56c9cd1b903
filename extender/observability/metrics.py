"""All metric families of the service, in a registry of their own. Nothing is registered on import.

Rules of this file
- Label values come from fixed sets, never from input, so that callers cannot create series.
- Labels whose values are all known here (`known`) have every series from the start, at 0: `increase` of a series that
  is new does not see its first event. Series of predictions start at 0 when a node of their kind is scraped.
- A family answers a question of an operator. Its text in `metrics.toml` explains the label values. A test compares
  both with `docs/metrics.md`, which `python -m tests.docs.metrics_page` writes.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector, generate_latest

from extender.identity import AccessScope, Means
from extender.kubelet.verdict import Certainty
from extender.scheduling.binder import BindFailure
from extender.scheduling.judgement import Trouble

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

_VERBS: Final = ("filter", "prioritize", "preempt", "bind")
TEXTS: Final = tomllib.loads(files("extender.observability").joinpath("metrics.toml").read_text())
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
        self.verb_seconds = self._histogram("verb_seconds", ("verb", "outcome"))
        for call in product(_VERBS, ("answered", "invalid", "unready", "busy", "failed")):
            self.verb_seconds.labels(*call)
        self.phase_seconds = self._histogram("phase_seconds", ("verb", "phase"))
        self.candidates = self._counter("filter_candidates", ("result", "certainty"))
        self.preemptions = self._counter(
            "preemption_candidates",
            result=("kept", "extended", "refused", "protected_victim", "unknown_victim", "nominated", "undecided"),
        )
        self.judgements = self._counter("judgements", source=("replayed",))
        self.unjudged = self._counter("unjudged", trouble=Trouble)
        self.loop_lag = self._histogram("event_loop_lag_seconds", ())
        self.loop_blocked = self._counter("event_loop_blocked", kind=("node", "pod", "other"))
        self.changing_nodes = self._gauge("changing_nodes")
        self.late_projections = self._counter("late_projections", outcome=("finished", "left_out"))
        self.late_steps = self._counter("late_projection_steps")
        self.remembered = self._gauge("remembered_judgements")

    def _nodes(self) -> None:
        self.reports = self._counter(
            "reports",
            kind=("report", "heartbeat"),
            outcome=("accepted", "invalid", "too_large", "outdated", "unknown", "full", "failed"),
        )
        self.nodes = self._gauge("nodes", ("certainty",))
        self.kubelets = self._gauge("kubelets", ("minor", "certainty"))
        self.silence = self._gauge("node_silence_seconds", ("percentile",))
        self.classes = self._gauge("node_classes")

    def _in_flight(self) -> None:
        self.assumed = self._gauge("assumed_pods")
        self.predictions = self._counter("predictions", ("policy", "scope", "kubelet", "certainty", "outcome"))
        self.demands = self._counter("demands", result=("met", "broken", "not_known"))
        self.behaviours = self._gauge("kubelet_behaviours", ("rule", "value"))
        self.score_only = self._gauge("distrusted_nodes")
        self.left_out = self._gauge("left_out_nodes")
        self.groups = self._gauge("groups", ("state",))
        self.held_places = self._gauge("held_places")
        self.expired_groups = self._gauge("expired_groups")
        self.shape_fits = self._gauge("shape_fits", ("shape", "pool"))
        self.shape_missing = self._gauge("shape_missing", ("shape",))
        self.shape_age = self._gauge("shape_age_seconds", ("shape",))
        self.unread_shapes = self._gauge("unreadable_shapes")
        self.topology_faults = self._gauge("unreadable_topologies")
        self.watch_silence = self._gauge("watch_silence_seconds", ("watch",))
        self.unread_objects = self._gauge("unreadable_objects", ("watch",))
        self.binds = self._counter("binds", outcome=("bound", "unsure", "invalid", "unready", *BindFailure))
        self.claim_forecasts = self._counter("claim_forecasts", result=("agrees", "differs", "not_known"))

    def _callers(self) -> None:
        self.insecure = self._gauge("insecure")
        self.admissions = self._counter(
            "admissions",
            means=Means,
            scope=AccessScope,
            outcome=("allowed", "unauthenticated", "forbidden", "unavailable"),
        )
        self.reviews = self._counter("reviews", kind=("token", "access"), outcome=("yes", "no", "failed", "grace"))
        self.limited = self._counter("limited", ("limit",))
        self.responses = self._counter("responses", ("scope", "status"))

    def _transport(self) -> None:
        self.connections = self._gauge("connections", ("listener",))
        self.accept_failures = self._counter("accept_failures", reason=("files", "memory", "other"))
        self.certificate_loads = self._counter("certificate_loads", outcome=("loaded", "failed"))
        self.certificate_expiry = self._gauge("certificate_expiry_timestamp_seconds")

    def _leadership(self) -> None:
        self.leader = self._gauge("leader")
        self.refused_pods = self._gauge("refused_pods")
        self.janitor = self._counter("janitor_pods", outcome=("deleted", "would_delete", "gone", "failed"))
        self.scale_ups = self._counter(
            "scale_ups", outcome=("asked", "placed", "gone", "timed_out", "stopped", "limited", "no_pool", "failed")
        )
        self.scale_up_pods = self._gauge("scale_up_pods")
        self.kueue_answers = self._counter("kueue_answers", state=("ready", "retry", "rejected", "pending", "failed"))
        self.kueue_held_places = self._gauge("kueue_held_places")
        self.room_plans = self._counter("room_plans", outcome=("done", "dry_run", "abandoned", "stopped"))
        self.room_evictions = self._counter("room_evictions", outcome=("evicted", "budget", "failed"))
        self.room_stopped = self._gauge("room_stopped")
        self.pod_events = self._counter("pod_events", outcome=("written", "failed"))
        self.wake_ups = self._counter("wake_ups", outcome=("touched", "limited", "failed"))

    def _questions(self) -> None:
        self.questions_now = self._gauge("questions_now", ("state",))
        self.questions = self._counter("questions", ("kind", "outcome"))
        self.question_seconds = self._histogram("question_seconds", ("kind",), (*_SECONDS[4:], 10.0, 30.0, 60.0))

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

    def _counter(self, name: str, labels: Sequence[str] = (), **known: Iterable[str]) -> Counter:
        family = Counter(f"numa_extender_{name}", TEXTS[name], labels or [*known], registry=self.registry)
        family.labels = cache(family.labels)  # type: ignore[method-assign]
        for values in product(*known.values()) if known else ():
            family.labels(*values)
        return family

    def _gauge(self, name: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"numa_extender_{name}", TEXTS[name], labels, registry=self.registry)

    def _histogram(self, name: str, labels: Sequence[str], buckets: Sequence[float] = _SECONDS) -> Histogram:
        family = Histogram(f"numa_extender_{name}", TEXTS[name], labels, registry=self.registry, buckets=buckets)
        family.labels = cache(family.labels)  # type: ignore[method-assign]
        return family
