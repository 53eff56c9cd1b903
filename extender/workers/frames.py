"""The messages between the service, the template of its workers, and the workers.

Each message is a frame: 4 bytes of length, 1 byte that says what it is, and that many bytes more. On the control socket
the service sends to the template; on the socket of a question the service sends one question and the worker answers.
Only our own processes hold these sockets, which have no name: that is why values may travel pickled.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal

from extender.scheduling.judge import Doubts

HEADER: Final = struct.Struct("!IB")


class Control(IntEnum):
    """What the service sends to the template."""

    UPDATE = 1
    """A pickled `SnapshotUpdate`."""
    QUESTION = 2
    """A pickled `QuestionStart`; the worker's socket comes with it as ancillary data."""
    STOP = 3
    """A pickled number: the question's worker is not needed any more."""


class ReplyFrame(IntEnum):
    """What a worker sends to the service. Without one of the last five at its end, the answer is not complete."""

    PIECE = 1
    """A piece of the answer."""
    END = 2
    """The answer is complete."""
    NOT_UNDERSTOOD = 3
    """JSON: [kind of the WireError, field, reason]."""
    UNKNOWN_NODE = 4
    """The name of the node."""
    OUT_OF_MEMORY = 5
    DEFECT = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What the template starts with: how to judge, how to log, how much one worker may cost.

    `max_bytes`: of memory, beyond what the template holds already.
    """

    strategy: str
    resource_weights: str
    doubts: Doubts
    log_level: Literal["debug", "info", "warning", "error"]
    log_format: Literal["text", "json"]
    max_bytes: int


@dataclass(frozen=True, slots=True)
class QuestionStart:
    """`seconds`: after so long the worker ends by itself, if nobody stopped it before."""

    number: int
    request_id: str
    seconds: float


def frame(kind: int, payload: bytes = b"") -> bytes:
    """One message."""
    return HEADER.pack(len(payload), kind) + payload
