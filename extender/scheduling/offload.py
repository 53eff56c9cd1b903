"""How the verbs run long work off the event loop."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs long work off the event loop."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        """Run `work(*args)` elsewhere."""
