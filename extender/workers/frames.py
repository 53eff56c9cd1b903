"""The messages between the service, the template process and its workers.

A message is a frame: 4 bytes of length, 1 byte for the kind, then the payload. On the control socket the service sends
to the template. On the socket of a question the service sends one question and the worker replies. These sockets have
no name and only our own processes hold them, so pickled values are safe.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from extender.scheduling.judgement import UncertaintyPolicy

HEADER: Final = struct.Struct("!IB")


class Control(IntEnum):
    """What the service sends to the template."""

    UPDATE = 1
    """A pickled `SnapshotUpdate`."""
    QUESTION = 2
    """A pickled `QuestionStart`. The worker's socket comes with it as ancillary data."""
    STOP = 3
    """A pickled number: the worker of this question is no longer needed."""


class ReplyFrame(IntEnum):
    """What a worker sends to the service. A reply that does not end with one of the last five is incomplete."""

    PIECE = 1
    """A part of the reply."""
    END = 2
    """The reply is complete."""
    NOT_UNDERSTOOD = 3
    """JSON: [kind of the WireError, field, reason]."""
    UNKNOWN_NODE = 4
    """The name of the node."""
    OUT_OF_MEMORY = 5
    DEFECT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What the template starts with: how to judge, how to log, and the limits of one worker.

    `max_bytes`: memory in addition to what the template holds.
    """

    strategy: str
    resource_weights: str
    uncertainty: UncertaintyPolicy
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]
    max_bytes: int


@dataclass(frozen=True, slots=True)
class QuestionStart:
    """`seconds`: the worker ends itself after this time if it was not stopped before.

    `began`: when the question got its place, by the monotonic clock, which all processes share. A worker that had to
    wait for its template has less time left.
    """

    number: int
    request_id: str
    seconds: float
    began: float


def frame(kind: int, payload: bytes = b"") -> bytes:
    """One message."""
    return HEADER.pack(len(payload), kind) + payload
