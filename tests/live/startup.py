"""What a kubelet's managers do otherwise in the first moments after a start. The restatement does not model it."""

import contextlib
from collections.abc import Collection, Iterator, Mapping

from tests.oracle.hints import Hint
from tests.oracle.kubelet import NaiveKubelet
from tests.oracle.pods import Container, Pod


@contextlib.contextmanager
def sources_not_ready(naive: NaiveKubelet, started: Collection[str]) -> Iterator[None]:
    """No manager collects anything, and the device manager leaves containers alone that run already.

    *started*: UIDs of pods whose containers run.
    """
    managers = (naive.cpus, naive.memory, naive.devices)
    allocate = naive.devices.allocate

    def allocate_new(pod: Pod, container: Container, affinity: Hint, active: dict[str, Pod]) -> None:
        if pod.uid not in started:
            allocate(pod, container, affinity, active)

    for manager in managers:
        manager.collect = _collect_nothing  # type: ignore[method-assign]
    naive.devices.allocate = allocate_new  # type: ignore[method-assign]
    try:
        yield
    finally:
        for manager in managers:
            del manager.collect
        del naive.devices.allocate


def unregister(naive: NaiveKubelet) -> None:
    """No device plugin is known: devices give no hints, and none can be allocated."""
    for healthy in naive.devices.healthy.values():
        healthy.clear()
    naive.devices._hints_of = _no_hints  # type: ignore[assignment, method-assign]


def register(naive: NaiveKubelet, plugins: Mapping[str, Collection[str]]) -> None:
    """All device plugins have registered; *plugins*: healthy device ids by resource."""
    naive.devices.__dict__.pop("_hints_of", None)
    for resource, ids in plugins.items():
        naive.devices.healthy[resource] = set(ids)


def _collect_nothing(active: dict[str, Pod]) -> None:
    pass


def _no_hints(*_: object) -> None:
    return None
