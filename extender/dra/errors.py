"""Errors that end an allocation without an answer for the node."""


class AllocationError(Exception):
    """kube-scheduler gives up the pod for now, on all nodes. The message says why."""


class CelError(AllocationError):
    """An expression fails on a device."""


class CelCompileError(AllocationError):
    """The API server refuses the expression."""


class NotReplayedError(Exception):
    """The answer depends on something that the replay does not know. The message says what."""
