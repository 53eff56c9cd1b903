"""Whether the service is ending, and whether it leads: set by others, read by /readyz. A leaf."""

from collections.abc import Callable
from dataclasses import dataclass


def alone() -> bool:
    """Where there is no lease, whoever runs leads."""
    return True


@dataclass(slots=True)
class Lifecycle:
    """`draining`: a signal came; new work should go elsewhere, and is still done if it comes. `leads`: may write."""

    draining: bool = False
    leads: Callable[[], bool] = alone
