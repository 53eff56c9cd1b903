"""Connects NodeResourceTopology objects with the store of nodes."""

from collections.abc import Mapping

from extender.features.topologies.feed import BATCH, TOPOLOGIES, TopologyFeed
from extender.kube.watch import WatchStatus
from extender.runtime.connection import ApiConnection, ConnectedFeature


class TopologiesFeature(ConnectedFeature):
    """Watches NodeResourceTopology objects, and gives their reports and counts to the store of nodes."""

    def connect(self, connection: ApiConnection) -> None:
        """Watch the objects. Those that are not late confirm their nodes."""
        service = self.service
        feed = TopologyFeed(
            service.known.nodes,
            service.clock,
            max_bytes=service.settings.max_body_bytes,
            uid_of=connection.feed.uid_of,
            switches=service.settings.switches,
        )

        def confirm(states: Mapping[str, WatchStatus]) -> None:
            state = states["topologies"]
            if not state.broken and state.silent_seconds <= service.settings.watch_silent_seconds:
                feed.confirm()
                service.metrics.topology_faults.set(len(feed.trouble))

        connection.watch("topologies", TOPOLOGIES, feed.apply, batch_size=BATCH)
        connection.on_check.append(confirm)


make = TopologiesFeature
