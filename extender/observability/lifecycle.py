"""Whether the service is ending, and who leads: set by others, read by /readyz and by what passes calls on. A leaf."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class LeaderCalls(Protocol):
    """Calls to the leader, where that is another process."""

    def takes(self, path: str) -> bool:
        """Whether a call to *path* is to be passed on now."""

    async def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """The leader's answer, in bounded time; None if there was none."""


def alone() -> bool:
    """Where there is no lease, whoever runs leads."""
    return True


@dataclass(slots=True)
class Lifecycle:
    """`draining`: a signal came; new work should go elsewhere, and is still done if it comes. `leads`: may write.

    `leader`: None where calls are not passed on.
    """

    draining: bool = False
    leads: Callable[[], bool] = alone
    leader: LeaderCalls | None = None
