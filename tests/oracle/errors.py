"""The two ways a kubelet says no: it does not start, or it refuses a pod."""


class NaiveKubeletError(Exception):
    """The kubelet does not run with this configuration (it stops, or it panics)."""


class AdmissionError(Exception):
    """A pod is refused: the reason and the message of its status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


def allocate_failed(text: str) -> AdmissionError:
    """Every Allocate error without a reason of its own is wrapped like this (§10)."""
    return AdmissionError("UnexpectedAdmissionError", f"Allocate failed due to {text}, which is unexpected")
