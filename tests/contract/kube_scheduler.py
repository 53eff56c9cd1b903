"""What kube-scheduler does with its extenders, restated: whom it asks, what it skips, and who binds.

The rule of 1.30 to 1.36 (scheduler.go buildExtenders; schedule_one.go findNodesThatPassExtenders, extendersBinding;
extender.go IsInterested). Until 1.29 an error of bind was never skipped.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.fakes.apiserver import FakeApiServer
from tests.plain_http import HTTP
from tests.reports import args_of
from tests.world.scheduler import binding_of

Json = dict[str, Any]
WAITS = "waits"
CHECKED = "bound, checked"
FILTERED = "bound, filtered only"
UNCHECKED = "bound, unchecked"


class ExtenderError(Exception):
    """The call failed, or was answered with an error."""


class KubeScheduler:
    """One attempt at a time for each pod. *base*: where the extender listens; the configuration's paths are kept."""

    def __init__(self, configuration: Json, base: str, server: FakeApiServer) -> None:
        entries: list[Json] = configuration["extenders"]
        self._extenders = sorted(entries, key=lambda entry: bool(entry.get("ignorable")))
        self._base, self._server = base, server

    def schedule(self, pod: Json, nodes: list[str], before_bind: Callable[[], None] = lambda: None) -> str:
        """What becomes of the pod: WAITS, CHECKED (the extender bound it), FILTERED or UNCHECKED (we bound it)."""
        name, filtered = pod["metadata"]["name"], False
        for entry in self._interested(pod, "filterVerb"):
            try:
                nodes = self._call(entry, "filterVerb", args_of(pod, *nodes))["NodeNames"] or []
                filtered = True
            except ExtenderError:
                if not entry.get("ignorable"):
                    return WAITS
        if not nodes:
            return WAITS
        before_bind()
        for entry in self._interested(pod, "bindVerb"):
            try:
                self._call(entry, "bindVerb", binding_of(pod, nodes[0]))
            except ExtenderError:
                if entry.get("ignorable"):
                    continue
                return WAITS
            return CHECKED
        self._server.pods.bind(name, nodes[0])
        return FILTERED if filtered else UNCHECKED

    def _interested(self, pod: Json, verb: str) -> Iterator[Json]:
        asked = {name for container in _containers(pod) for name in _resources(container)}
        for entry in self._extenders:
            managed = {resource["name"] for resource in entry.get("managedResources", [])}
            if entry.get(verb) and (not managed or managed & asked):
                yield entry

    def _call(self, entry: Json, verb: str, args: Json) -> Json:
        url = f"{self._base}{urlsplit(entry['urlPrefix']).path}/{entry[verb]}"
        try:
            reply = HTTP.post(url, json=args)
        except httpx.TransportError as error:
            raise ExtenderError(str(error)) from error
        answer: Json = reply.json() if reply.status_code == 200 else {"Error": f"status {reply.status_code}"}
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])
        return answer


def _containers(pod: Json) -> list[Json]:
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]


def _resources(container: Json) -> Iterator[str]:
    resources: Mapping[str, Mapping[str, str]] = container.get("resources", {})
    for kind in ("requests", "limits"):
        yield from resources.get(kind, {})
