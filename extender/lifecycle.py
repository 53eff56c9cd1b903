"""Whether the service is ending: set by the server, read by /readyz. A leaf."""

from dataclasses import dataclass


@dataclass(slots=True)
class Lifecycle:
    """`draining`: a signal came; new work should go elsewhere, and is still done if it comes."""

    draining: bool = False
