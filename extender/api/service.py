"""The parts of one extender, which the composition root creates.

The verbs of kube-scheduler use none of this: `scheduling` is complete in itself.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from fastapi import APIRouter

from extender.api.access.authority import LateAuthority
from extender.api.http.slices import Slices
from extender.config.settings import Settings
from extender.observability.lifecycle import Lifecycle
from extender.observability.metrics import Metrics
from extender.questions.asked import Questions
from extender.questions.dra import ClaimForecast
from extender.questions.node_context import NOTHING_KNOWN, NodeContext
from extender.scheduling.cached_judge import CachedJudge
from extender.scheduling.effects import Offload
from extender.scheduling.objections import Objector
from extender.scheduling.records.kubelet_rules import Behaviour
from extender.scheduling.records.predictions import Audit
from extender.scheduling.scheduling import Scheduling
from extender.scheduling.shared import CallRecords, KnownCluster


class ContextSource(Protocol):
    """Labels and totals of nodes, and finished pods, from watches."""

    def __call__(self, name: str, /) -> NodeContext:
        """What is known of a node."""

    def finished(self, name: str, uids: Collection[str], /) -> Mapping[str, int]:
        """What the finished pods among *uids* request on the node, by resource."""


class LateNodeContext:
    """A `ContextSource` without content until `use` provides a source. A feature may set `make_forecast`."""

    def __init__(self) -> None:
        self.make_forecast: Callable[[], ClaimForecast | None] = lambda: None
        self._source: ContextSource | None = None

    def use(self, source: ContextSource) -> None:
        """Answer from *source* from now on."""
        self._source = source

    def __call__(self, name: str) -> NodeContext:
        """What is known of a node. Nothing is, until `use` gives a source."""
        return NOTHING_KNOWN if self._source is None else self._source(name)

    def finished(self, name: str, uids: Collection[str]) -> Mapping[str, int]:
        """What finished pods of *uids* request. Empty until `use` gives a source."""
        return {} if self._source is None else self._source.finished(name, uids)


class Feature:
    """A part of the service that no other part names. By default a feature adds nothing.

    `objectors`: what filter, prioritize and bind ask.
    """

    objectors: Sequence[Objector] = ()

    def __init__(self, service: "Service") -> None:
        self.service: Final = service

    def routers(self) -> Iterable[APIRouter]:
        """The routes of the feature."""
        return ()

    def use(self, _questions: Questions, /) -> None:
        """The feature may ask these questions. Called once, before the service runs."""

    def scrape(self) -> None:
        """Set the gauges of the feature. Called before each scrape."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One extender. `clock`: seconds of a monotonic clock.

    `known`: nodes, pods and the API server; `surroundings`: labels, taints and totals of nodes. `judging`: judges pods
    on nodes and keeps the judgements. `records` keeps the last scheduler calls.
    """

    settings: Settings
    clock: Callable[[], float]
    offload: Offload
    metrics: Metrics
    known: KnownCluster
    surroundings: LateNodeContext
    judging: CachedJudge
    scheduling: Scheduling
    records: CallRecords
    audit: Audit
    features: list[Feature] = field(default_factory=list)
    authority: LateAuthority = field(default_factory=LateAuthority)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    slices: Slices = field(default_factory=Slices)

    def add(self, feature: Feature) -> None:
        """Add a feature. Its objectors are asked after those of features that were added earlier."""
        self.features.append(feature)
        self.scheduling.objectors.extend(feature.objectors)

    def behaviours(self) -> Iterator[Behaviour]:
        """The behaviours that the audit has found for the current kubelets of nodes."""
        return self.audit.behaviours.all(
            lambda name: None if (node := self.known.nodes.get(name)) is None else node.kubelet
        )
