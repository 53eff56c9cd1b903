"""The receivers of reports, one module each, and one that only prints. All implement `Sink`, and none ever raises."""

from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, Protocol

from node_exporter.report import NodeReport


class Delivery(Enum):
    """The result of sending a message."""

    ACCEPTED = "accepted"
    WANTS_REPORT = "wants_report"
    """A heartbeat named a report that the receiver does not have."""
    REFUSED = "refused"
    """The receiver will never accept this content: sending it again is useless."""
    UNAVAILABLE = "unavailable"
    """No reply, or a reply that says to retry later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`detail`: one line for the log.

    `retry_after_seconds`: the wait that the receiver requests, None if it requests none.

    `sent_bytes`: the size of the message as sent.
    """

    outcome: Delivery
    detail: str = ""
    retry_after_seconds: float | None = None
    sent_bytes: int = 0


class Sink(Protocol):
    """A receiver of reports. Every message ends in a `Reply`."""

    def put_report(self, report: NodeReport, body: bytes) -> Reply:
        """Send a full report. `body` is its JSON, whose digest heartbeats name."""
        ...

    def post_heartbeat(self, body: bytes) -> Reply:
        """Confirm that an earlier report is still valid, with the JSON of a `Heartbeat`.

        WANTS_REPORT if it is not known.
        """
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class DrySink:
    """Writes every message to a stream, and accepts it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def put_report(self, report: NodeReport, body: bytes) -> Reply:
        """Write the report."""
        del report
        return self._write(body)

    def post_heartbeat(self, body: bytes) -> Reply:
        """Write the heartbeat."""
        return self._write(body)

    def close(self) -> None:
        """There is nothing to close."""

    def _write(self, body: bytes) -> Reply:
        try:
            self._stream.write(body + b"\n")
            self._stream.flush()
        except OSError as error:
            return Reply(outcome=Delivery.UNAVAILABLE, detail=str(error))
        return Reply(outcome=Delivery.ACCEPTED, sent_bytes=len(body) + 1)
