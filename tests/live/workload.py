"""Pods for the real API server, and a feeder that keeps the cluster near its capacity."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from tests.drill.workload import make_pod, requested
from tests.live.api import Api, ApiError, Json
from tests.live.book import Book, Entry
from tests.live.processes import SceneError

PODS = "/api/v1/namespaces/default/pods"


def drill_pod(name: str, number: int, random: Random) -> Json:
    """A pod as in the drill: mostly Guaranteed with whole CPUs, some with devices, some Burstable."""
    made = make_pod(number, random, 0.0)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**made["spec"], **_QUICK}}


def simple_pod(name: str, cpu: int, memory: str = "1Gi", **spec: object) -> Json:
    """A Guaranteed pod with one container; *spec*: further fields of its spec."""
    amounts = {"cpu": str(cpu), "memory": memory}
    container = {"name": "c0", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    full = {"containers": [container], **_QUICK, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": full}


_QUICK: Json = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": False}


def create(api: Api, pod: Json) -> Json:
    """Create it in `default`, also while the API server is being started again."""
    try:
        return api.patiently("POST", PODS, pod)
    except ApiError as error:
        if error.status != 409:
            raise
    return api.patiently("GET", f"{PODS}/{pod['metadata']['name']}")  # the answer to the first try was lost


def delete(api: Api, name: str) -> None:
    """Delete a pod of `default`, with its own grace; nothing if it is gone."""
    try:
        api.patiently("DELETE", f"{PODS}/{name}")
    except ApiError as error:
        if error.status != 404:
            raise


@dataclass
class Fed:
    """What became of the pods of one feeding.

    `given_up`: not placed within `patience_seconds`, and deleted. By name, of those that were not bound: `late`, the
    pods, and `said`, what kube-scheduler said last of them.
    """

    created: int = 0
    given_up: int = 0
    late: dict[str, Json] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    patience_seconds: float = 45.0


class Feeder:
    """Creates pods while less than *load* of the CPUs is asked for, and deletes what has ended, as a Job would.

    *every*: seconds from one pod to the next, at least; what was due while the API server was away comes at once.
    """

    def __init__(
        self, api: Api, book: Book, cpus: float, *, load: float = 0.95, patience: float = 45.0, every: float = 0.0
    ) -> None:
        self._api, self._book, self._every = api, book, every
        self._room = load * cpus * 1000
        self._patience = patience
        self._cleaned: dict[str, float] = {}
        """When each pod was deleted."""

    def feed(self, pods: list[Json], on_tick: Callable[[int], None] = lambda _done: None) -> Fed:
        """Until all are created and none is left.

        Raises:
            SceneError: a deleted pod does not end.
        """
        fed, waiting, started = Fed(patience_seconds=self._patience), list(reversed(pods)), time.monotonic()
        mine, by_name = set[str](), {pod["metadata"]["name"]: pod for pod in pods}
        while True:
            entries = [entry for entry in self._book.entries() if entry.pod["metadata"]["uid"] in mine]
            self._clean(entries, fed, by_name)
            over = sum(entry.is_over for entry in entries)
            on_tick(over)
            if not waiting and over == len(mine):
                fed.seconds = time.monotonic() - started
                return fed
            asked = sum(requested(entry.pod)["cpu"] for entry in entries if not entry.is_over)
            unseen = len(mine) - len(entries)
            while waiting and not unseen and asked < self._room and self._is_due(len(mine), started):
                pod = waiting.pop()
                mine.add(create(self._api, pod)["metadata"]["uid"])
                fed.created += 1
                asked += requested(pod)["cpu"]
            self._book.wait(lambda: False, 0.1)

    def _is_due(self, number: int, started: float) -> bool:
        return time.monotonic() >= started + self._every * number

    def _clean(self, entries: list[Entry], fed: Fed, wanted: Mapping[str, Json]) -> None:
        now = time.monotonic()
        for entry in entries:
            uid = entry.pod["metadata"]["uid"]
            if not entry.is_over and now - self._cleaned.get(uid, now) > 2 * self._patience:
                raise SceneError(f"{entry.name} was deleted, and its kubelet does not end it: {entry.node}")
            if entry.deleted or uid in self._cleaned:
                continue
            is_late = entry.node is None and now - entry.created_at > self._patience
            is_stuck = entry.node is not None and now - (entry.bound_at or now) > 10 * self._patience
            if entry.is_over or is_late or is_stuck:
                delete(self._api, entry.name)
                self._cleaned[uid] = now
                fed.given_up += is_late or is_stuck
                if is_late:
                    fed.late[entry.name] = wanted[entry.name]
                    fed.said[entry.name] = f"{entry.name}, {requested(entry.pod)}: {_said_of(entry.pod)}"


def _said_of(pod: Json) -> str:
    """Why kube-scheduler has not placed the pod."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "not tried yet")
