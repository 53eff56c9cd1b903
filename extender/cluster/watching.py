"""How much the pod watch knows."""

from enum import Enum


class Watching(Enum):
    """What is known of the pods on nodes, beside reports."""

    NOT = "not"
    """There is no watch of pods: only what this service binds is known."""
    LIVE = "live"
    """Every pod, as the API server has it."""
    SILENT = "silent"
    """The watch is silent: pods may have come and gone."""
