"""How a creation can fail.

A container that the policy refuses stays in `CreateContainerError`. Where the plugin process itself would die the
verdict is PANIC: the runtime then creates containers without the plugin.
"""

from enum import Enum
from typing import Final


class NriRefusal(Enum):
    """Why the policy refuses a container; the values are those of the recorded answers."""

    SLICE = "slice"
    TAKE = "take"
    FRACTION = "fraction"
    OFFER = "offer"
    STRICT_HINT = "strict-hint"
    STRICT_ISOLATION = "strict-iso"
    AFFINITY = "affinity"
    REQUEST = "request"
    PANIC = "panic"
    NO_CONTAINER = "nocontainer"


class RefusalError(Exception):
    """Ends a decision. `refusal`: the class; `reason`: a sentence for a person."""

    def __init__(self, refusal: NriRefusal, reason: str) -> None:
        super().__init__(reason)
        self.refusal: Final = refusal
        self.reason: Final = reason
