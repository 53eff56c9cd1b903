"""kube-scheduler's calls about one pod, in its order: filter, prioritize, bind. How a call is made is the caller's.

`tests/drill/scheduler.py` adds the queue, back-off, preemption and restarts in virtual time,
`tests/contract/kube_scheduler.py` what a configuration with several extenders says. `tests/live` has the real one.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.reports import args_of

Json = dict[str, Any]
Call = Callable[[str, Json], Any]
"""Verb and body; the reply, None without one."""


def binding_of(pod: Json, node: str, **changed: str) -> Json:
    """A bind request. *changed*: fields that differ."""
    names = {"PodName": "name", "PodNamespace": "namespace", "PodUID": "uid"}
    return {**{field: pod["metadata"][name] for field, name in names.items()}, "Node": node, **changed}


class Scheduler:
    """The calls. *choose* decides among the nodes with the highest score."""

    def __init__(self, call: Call, choose: Random | None = None) -> None:
        self._call, self._choose = call, choose or Random(0)

    def filter(self, pod: Json, names: Sequence[str]) -> tuple[str, list[str]] | None:
        """Error and nodes that are offered; None without an answer."""
        reply = self._call("filter", args_of(pod, *names))
        return None if reply is None else (str(reply["Error"]), list(reply["NodeNames"] or ()))

    def best(self, pod: Json, names: Sequence[str]) -> str:
        """One of the nodes with the highest score; any of them without an answer, as all then score alike."""
        scores = self._call("prioritize", args_of(pod, *names))
        if scores is None:
            return self._choose.choice(names)
        highest = max(each["Score"] for each in scores)
        return str(self._choose.choice([each["Host"] for each in scores if each["Score"] == highest]))

    def bind(self, pod: Json, node: str) -> str | None:
        """The error, empty if the pod is bound; None without an answer."""
        reply = self._call("bind", binding_of(pod, node))
        return None if reply is None else str(reply["Error"])
