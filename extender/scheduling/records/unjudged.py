"""Classes of nodes that could not be judged, and why.

Rules of this file
- A class is recorded once, with the first pod for which it happened.
- Bounded: the oldest records are dropped. A class id is never reused, so a record never becomes wrong.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from extender.bounded import BoundedMap
from extender.replay.pod import Pod
from extender.scheduling.judgement import Trouble

MAX_CLASSES: Final = 5_000

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

    def is_heavy(self, class_id: int) -> bool:
        """Whether a replay of the class was stopped, after `MAX_STEPS` or because a call had no more time."""
        note = self._notes.get(class_id)
        return note is not None and note.trouble is not Trouble.DEFECT
