"""Why the node store refuses a report or a heartbeat."""

from extender.cluster.node import Observation


class OutdatedError(Exception):
    """A report or heartbeat is older than the report that is held, or contradicts it. The message names both."""

    def __init__(self, reason: str, held: Observation) -> None:
        super().__init__(f"{reason}; held is boot {held.boot_id!r}, sequence {held.sequence}")


class UnknownNodeError(LookupError):
    """No report of this node is held."""


class ClusterFullError(Exception):
    """A report of one more node than the service is set up for."""
