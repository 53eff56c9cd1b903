"""Where reports go. One module for each way; all speak `Sink`, and none ever raises."""

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from node_exporter.report import NodeReport


class Delivery(Enum):
    """What became of a message."""

    ACCEPTED = "accepted"
    WANTS_REPORT = "wants_report"
    """A heartbeat named a report that the receiver does not hold."""
    REFUSED = "refused"
    """The receiver will not take this content: sending the same again is useless."""
    UNAVAILABLE = "unavailable"
    """No answer, or one that asks for patience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`detail`: one line for the log. `retry_after_seconds`: the receiver's own wish, None if it has none.

    `sent_bytes`: the message's size on its way.
    """

    outcome: Delivery
    detail: str = ""
    retry_after_seconds: float | None = None
    sent_bytes: int = 0


class Sink(Protocol):
    """A receiver of reports. Whatever happens to a message ends in a `Reply`."""

    def put_report(self, report: NodeReport, body: bytes) -> Reply:
        """Send a full report; `body` is its JSON, whose digest heartbeats name."""
        ...

    def post_heartbeat(self, body: bytes) -> Reply:
        """Say that an earlier report still holds: the JSON of a `Heartbeat`. WANTS_REPORT if it is not held."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...
