"""The errors of this package, in one place.

An admission makes verdicts of `KubeletPanicError`, `DistributionHangError`, `NotEnoughCPUsError` and `BudgetError`. All
others say that the input is no possible machine, or that its kubelet does not start.
"""

from typing import Final


class BudgetError(Exception):
    """The replay must stop. Ends all its loops, and becomes a verdict in `admission`."""


class OutOfStepsError(BudgetError):
    """The replay has used up its steps. `steps`: how many it had."""

    def __init__(self, steps: float) -> None:
        super().__init__(f"the replay was stopped after {steps:.0f} steps")


class OutOfTimeError(BudgetError):
    """The caller's deadline has passed."""

    def __init__(self) -> None:
        super().__init__("the replay was stopped because its time limit was reached")


class FieldError(ValueError):
    """A document is wrong. `field`: the path of the wrong part, empty for the document as a whole; `reason`: why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}" if field else reason)
        self.field: Final = field
        self.reason: Final = reason


class MachineError(FieldError):
    """Facts that contradict each other. `field` is the path in the machine document."""


class TooLargeError(MachineError):
    """A limit of the replay is exceeded. The facts need not be wrong."""


class UnknownVersionError(ValueError):
    """The kubelet version is not of the form `v1.33.4-suffix`, or older than 1.27."""


class KubeletConfigError(FieldError):
    """A configuration with which no kubelet of that version starts.

    `field`: the KubeletConfiguration field to correct. The reason is the kubelet's, if it has one. `alternatives`:
    other reasons that the kubelet may print, because it checks options in random order.
    """

    def __init__(self, field: str, reason: str, alternatives: tuple[str, ...] = ()) -> None:
        super().__init__(field, reason)
        self.alternatives: Final = alternatives


class KubeletPanicError(Exception):
    """The kubelet indexes out of range here and crashes. The message is Go's.

    `alternatives` are other messages that the kubelet may print, because it visits resources in random order.
    """

    def __init__(self, message: str, alternatives: tuple[str, ...] = (), missing: str | None = None) -> None:
        """*missing*: the type of hugepages that a NUMA node of the machine does not have, if that is the cause."""
        super().__init__(message)
        self.alternatives: Final = alternatives
        self.missing: Final = missing


class NotEnoughCPUsError(Exception):
    """The request exceeds what is free, or the steps ended before it was met. The message is the kubelet's."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class DistributionHangError(Exception):
    """The kubelet hangs: its loop over remainder nodes never ends, or it tries too many sets of nodes."""
