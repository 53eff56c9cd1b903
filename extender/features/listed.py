"""The features, in the order in which filter, prioritize and bind ask them.

A feature is the folder of its name, whose module `feature` has a function `make`. To remove a feature, delete its
folder and its entry here. A feature that is switched off is not imported.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from importlib import import_module
from typing import Final, NamedTuple

from fastapi import APIRouter, HTTPException

from extender.api.service import Feature, Service
from extender.config.settings import Settings


class Listed(NamedTuple):
    """`is_on`: whether the settings switch the feature on. `off`: the reply of each route if not; a text: an error."""

    name: str
    is_on: Callable[[Settings], bool]
    off: Mapping[str, Mapping[str, object] | str] = {}


LISTED: Final[Sequence[Listed]] = (
    Listed("preemption", lambda _settings: True),
    Listed("deferrals", lambda _settings: True),
    Listed("namespaces", lambda settings: settings.namespace_demands == "on"),
    Listed("siblings", lambda settings: bool(settings.sibling_labels.strip() or settings.node_profiles)),
    Listed("topologies", lambda settings: settings.topologies == "on"),
    Listed("claims", lambda settings: settings.dra == "on"),
    Listed("kueue", lambda settings: settings.kueue != "off", {"/v1/kueue": {"mode": "off", "workloads": []}}),
    Listed("groups", lambda settings: settings.gangs == "on", {
        "/v1/groups": {"enabled": False, "total": 0, "states": {}, "groups": [], "next": None},
        "/v1/group": "no group is known: NUMA_EXTENDER_GANGS is off",
    }),
    Listed("shapes", lambda settings: settings.shapes == "on", {
        "/v1/shapes": {"enabled": False, "shapes": [], "unread": {}},
    }),
    Listed("autoscaling", lambda settings: settings.autoscaling != "off", {
        "/v1/scale-ups": {"mode": "off", "scale_ups": []},
    }),
    Listed("janitor", lambda settings: settings.janitor != "off"),
    Listed("pod_events", lambda settings: settings.pod_events == "on"),
    Listed("room", lambda settings: settings.room != "off", {
        "/v1/room": {
            "mode": "off", "leads": False, "stopped": "", "finding": "", "namespaces": [], "evictions": 0,
            "evictions_per_hour": 0, "plan": None, "history": [],
        },
    }),
    Listed("requeue", lambda settings: settings.wake_up),
)  # fmt: skip


def listed(settings: Settings) -> Iterator[Callable[[Service], Feature]]:
    """The function that makes each feature. For a feature that is switched off it makes one that only says so."""
    for each in LISTED:
        if each.is_on(settings):
            yield import_module(f"extender.features.{each.name}.feature").make
        elif each.off:
            yield partial(SwitchedOff, each.off)


class SwitchedOff(Feature):
    """The routes of a feature that is switched off, with their replies."""

    def __init__(self, replies: Mapping[str, Mapping[str, object] | str], service: Service) -> None:
        super().__init__(service)
        self._replies = replies

    def routers(self) -> Iterator[APIRouter]:
        """One for all of them."""
        router = APIRouter(include_in_schema=False)
        for path, reply in self._replies.items():
            router.add_api_route(path, partial(_replied, reply))
        yield router


async def _replied(reply: Mapping[str, object] | str) -> Mapping[str, object]:
    if isinstance(reply, str):
        raise HTTPException(HTTPStatus.NOT_FOUND, reply)
    return reply
