"""Classes of nodes that could not be judged, and why.

Rules of this file
- A class is recorded once, with the first pod for which it happened.
- Bounded: the oldest records are dropped. A class id is never reused, so a record never becomes wrong.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from extender.bounded import BoundedMap
from extender.replay.pod import Pod
from extender.scheduling.judgement import Trouble

LOG: Final = logging.getLogger(__name__)
MAX_CLASSES: Final = 5_000
MAX_NAMES: Final = 5
"""How many nodes of a class a log entry names."""
_MAX_SHAPE: Final = 1_500
"""Characters of a pod shape in a log entry."""

TROUBLE_TEXTS: Final[Mapping[Trouble, str]] = {
    Trouble.STEPS: "the replay of the kubelet was stopped because it took too many steps",
    Trouble.TIME: "the replay of the kubelet was stopped because its time limit was reached",
    Trouble.DEFECT: "the replay of the kubelet failed; the log of the service has the details",
}


class Note(NamedTuple):
    """What happened, and the first pod to which it happened."""

    trouble: Trouble
    pod: str

    @property
    def reason(self) -> str:
        """The text for people."""
        return f"{TROUBLE_TEXTS[self.trouble]}, first for pod {self.pod}"


class UnjudgedClasses:
    """The records, by class id."""

    def __init__(self, size: int = MAX_CLASSES) -> None:
        self._notes: Final[BoundedMap[int, Note]] = BoundedMap(size)

    def note(self, class_id: int, trouble: Trouble, pod: Pod) -> bool:
        """Record the trouble; False if the class has a record already."""
        if class_id in self._notes:
            return False
        self._notes[class_id] = Note(trouble, f"{pod.namespace}/{pod.name}")
        return True

    def of(self, class_id: int) -> Note | None:
        """Why the class could not be judged; None if it could."""
        return self._notes.get(class_id)


def log_unjudged(class_id: int, names: Iterable[str], trouble: Trouble, pod: Pod, detail: str) -> None:
    """Log that a class could not be judged. *names*: some of its nodes. *detail*: the traceback of a defect."""
    LOG.log(
        logging.ERROR if trouble is Trouble.DEFECT else logging.WARNING,
        "class of nodes not judged trouble=%s class=%d nodes=%s pod=%s/%s shape=%s%s",
        trouble.value,
        class_id,
        ",".join(names),
        pod.namespace,
        pod.name,
        repr(pod.shape)[:_MAX_SHAPE],
        f"\n{detail}" if detail else "",
    )
