"""The state of the pod watch."""

from enum import Enum


class Watching(Enum):
    """What is known of pods on nodes in addition to reports."""

    NOT = "not"
    """There is no watch of pods: only what this service binds is known."""
    LIVE = "live"
    """Every pod in the API server is known."""
    SILENT = "silent"
    """The watch is silent: pods may have started or ended."""
