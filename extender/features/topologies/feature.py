"""NodeResourceTopology objects as a source of node reports, so that any number of replicas share one state.

Rules of this file
- An object that contains our report counts as that report, in the same order as if it had been pushed. Any other object
  gives counts, and counts never replace a fresh report.
- A changed object keeps its node fresh until its writer has missed `MISSED` of its announced confirmations. Clocks of
  nodes do not matter: what counts is when a change reached us.
- An object that cannot be read is reported (`trouble`) and changes nothing: the last known state becomes stale.

RBAC: `list`, `watch` on noderesourcetopologies (topology.node.k8s.io).
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from extender.api.service import Service
from extender.cluster.node import NodeRecord, OutdatedError, UnknownNodeError
from extender.intake import observation_of
from extender.kube.changes import Batch, Gone
from extender.kube.objects import TOPOLOGY, mapping, text
from extender.kube.source import Source
from extender.kube.watch import WatchStatus
from extender.runtime.connection import CHECK_SECONDS, ApiConnection, ConnectedFeature
from extender.wire.errors import WireError
from extender.wire.nrt import Published, counted, published_from_json, unpack_report
from extender.wire.reports import read_report

MISSED: Final = 3
"""Confirmations that a writer may miss. Jitter and a restart cost one."""
CONFIRM_SECONDS: Final = 20.0
"""The time between two rounds of keeping nodes fresh. Far below the time after which a node is stale."""
BATCH: Final = 50
"""Limit on the changes in a batch: each report takes a millisecond of the event loop."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRecord:
    """One object: its content, or why it cannot be read (`fault`, empty if it can)."""

    name: str
    published: Published | None
    fault: str = ""


def decode_topology(value: Mapping[str, Any]) -> tuple[str, TopologyRecord] | None:
    """The node's name and the record. None without a name."""
    name = text(mapping(value, "metadata"), "name")
    if not name:
        return None
    try:
        return name, TopologyRecord(name=name, published=published_from_json(value))
    except WireError as error:
        return name, TopologyRecord(name=name, published=None, fault=str(error))


TOPOLOGIES: Final = Source(
    path="/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies",
    decode=decode_topology,
    key=attrgetter("name"),
    reader=TOPOLOGY,
)
"""All objects."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The report in an object, and until when it keeps the node fresh."""

    published: Published
    record: NodeRecord
    good_until: float


class TopologyFeed:
    """Applies batches to the cluster of *service*, on the event loop. *uid_of*: the UID of a Node, "" if there is none.

    `is_heard`: whether the watch hears the API server, so that objects confirm nodes.
    """

    def __init__(self, service: Service, uid_of: Callable[[str], str]) -> None:
        self._cluster, self._clock, self._slices = service.known.nodes, service.clock, service.slices
        self._settings, self._uid_of, self.is_heard = service.settings, uid_of, True
        self._sources: dict[str, _Source] = {}
        self._confirmed_at = float("-inf")
        self.trouble: dict[str, str] = {}
        """Why objects were not accepted, by node."""

    def apply(self, batch: Batch[TopologyRecord]) -> None:
        """Apply changes from the watch."""
        for change in batch.changes:
            name = change.value.name
            if isinstance(change, Gone):
                self._sources.pop(name, None)
                self.trouble.pop(name, None)
                self._cluster.drop_pools(name, self._clock())
                continue
            fault = change.value.fault or self._take(name, change.value.published)
            if fault:
                _log.warning("topology object not accepted node=%s reason=%r", name, fault[:300])
                self.trouble[name] = fault
            else:
                self.trouble.pop(name, None)

    async def confirm(self) -> None:
        """Keep nodes fresh whose writers are not late. Called often; most calls do nothing."""
        if not self.is_heard or self._clock() - self._confirmed_at < CONFIRM_SECONDS:
            return
        self._confirmed_at = self._clock()
        async with self._slices.turn() as breathe:
            for name in list(self._sources):
                await breathe()
                source, now = self._sources.get(name), self._clock()
                if source is not None and now <= source.good_until:
                    self._confirm(name, source, now)
                elif source is not None:
                    self._cluster.drop_pools(name, now)

    def _take(self, name: str, published: Published | None) -> str:
        """Apply an object. Returns why it was not accepted, empty if it was."""
        assert published is not None
        now = self._clock()
        try:
            record = self._observe(name, published, now)
        except Exception as error:  # noqa: BLE001 - one object must not end the watch, whatever is in it
            return str(error)
        self._sources[name] = _Source(published, record, now + MISSED * published.refresh_seconds)
        return ""

    def _observe(self, name: str, published: Published, now: float) -> NodeRecord:
        """Store the report in an object, or the counts that follow from it."""
        if not published.carried:
            return self._cluster.observe_counts(counted(published, self._cluster.node_objects.version_of), now)
        body = unpack_report(published, self._settings.max_body_bytes)
        cluster = self._cluster
        report = read_report(
            body, cluster.node_objects.version_of, known=cluster.kubelet_with, switches=self._settings.switches
        )
        if report.facts.node_name != name:
            raise WireError(
                "node_name", f"the report is for node {report.facts.node_name!r}, but the object for {name!r}"
            )
        record = self._cluster.observe(observation_of(report, body), now)
        if published.pools:
            return self._cluster.observe_counts(counted(published, self._cluster.node_objects.version_of), now)
        return record

    def _confirm(self, name: str, source: _Source, now: float) -> None:
        """Let the report of an object count as just heard."""
        held = source.record.observation
        try:
            if not source.published.carried:
                self._cluster.observe_counts(counted(source.published, self._cluster.node_objects.version_of), now)
            else:
                self._cluster.heartbeat(name, boot_id=held.boot_id, sequence=held.sequence, digest=held.digest, now=now)
        except UnknownNodeError:
            if source.published.owner_uid and source.published.owner_uid == self._uid_of(name):
                self._again(name, source, now)
            else:
                del self._sources[name]  # the node was deleted
        except OutdatedError:
            self._again(name, source, now)
        except Exception as error:  # noqa: BLE001 - as above
            self.trouble[name] = str(error)

    def _again(self, name: str, source: _Source, now: float) -> None:
        """The node was recreated, its kubelet has another version, or it has since reported in another way."""
        try:
            record = self._observe(name, source.published, now)
        except Exception:  # noqa: BLE001 - as above
            del self._sources[name]
            return
        self._sources[name] = _Source(source.published, record, source.good_until)


class TopologiesFeature(ConnectedFeature):
    """Watches NodeResourceTopology objects, and gives their reports and counts to the store of nodes."""

    def connect(self, connection: ApiConnection) -> None:
        """Watch the objects. Objects that are not late confirm their nodes."""
        service = self.service
        feed = TopologyFeed(service, connection.feed.uid_of)

        def check(states: Mapping[str, WatchStatus]) -> None:
            state = states["topologies"]
            feed.is_heard = not state.broken and state.silent_seconds <= service.settings.watch_silent_seconds
            service.metrics.topology_faults.set(len(feed.trouble))

        connection.watch("topologies", TOPOLOGIES, feed.apply, batch_size=BATCH)
        connection.on_check.append(check)
        connection.every(CHECK_SECONDS, feed.confirm)


make = TopologiesFeature
