"""Prints what would be sent, one line a message, and sends nothing."""

from typing import BinaryIO

from node_exporter.report import NodeReport
from node_exporter.sinks import Delivery, Reply


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
