"""Whether the service is shutting down and whether it leads. Read by /readyz and by the forwarding of calls. A leaf."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

PASSED_ON: Final = "X-Numa-Extender-Passed-On"
"""The header of a call that another process has forwarded. This process answers it, leader or not."""


class LeaderCalls(Protocol):
    """Forwards calls to the leader, if that is another process."""

    def takes(self, path: str) -> bool:
        """Whether a call to *path* must be forwarded now."""

    async def answer(self, path: str, body: bytes) -> bytes | None:
        """The leader's reply, within a limited time. None if there was none."""


def alone() -> bool:
    """Without a lease, every process is its own leader."""
    return True


@dataclass(slots=True)
class Lifecycle:
    """`draining`: a termination signal was received; requests are still served. `leads`: this process may write.

    `leader`: None if calls are not forwarded.
    """

    draining: bool = False
    leads: Callable[[], bool] = alone
    leader: LeaderCalls | None = None
