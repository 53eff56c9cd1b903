"""Why the node store refuses a report or a heartbeat."""

from extender.cluster.node import Observation


class OutdatedError(Exception):
    """A report or heartbeat is older than the current report, or contradicts it. The message names both."""

    def __init__(self, reason: str, held: Observation) -> None:
        super().__init__(f"{reason}; the current report is of boot {held.boot_id!r}, sequence {held.sequence}")


class UnknownNodeError(LookupError):
    """There is no report of this node. The only argument is its name."""

    def __str__(self) -> str:
        """The error as a sentence."""
        return f"there is no report of node {str(self.args[0])[:253]!r}"


class ClusterFullError(Exception):
    """A report of a new node, although the limit of nodes is reached."""
