"""Several extenders: who is behind the Service, whether a drain may evict them, and whether a rollout ends.

The rules are those of the endpoints controller, of the disruption controller with the eviction API, and of the
Deployment controller, restated in a few lines and fed with the rendered recipes. What a ready standby does with the
scheduler's calls is played with real processes in tests/faults/test_passing.py.
"""

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import pytest

from extender.config.settings import Settings
from tests.manifests.rendering import Json, named, rendered

RECIPES = ("overlays/second-scheduler", "overlays/standalone", "overlays/replicas")


@dataclass
class Pod:
    """One of the Deployment's. `leads`: holds the lease. `listed`: has the lists of pods and nodes."""

    name: str
    leads: bool = False
    listed: bool = True


@dataclass
class Cluster:
    """The objects of a recipe, and its pods."""

    deployment: Json
    service: Json
    budget: Json
    pods: list[Pod] = field(default_factory=list)
    made: int = 0

    def __post_init__(self) -> None:
        container = self.deployment["spec"]["template"]["spec"]
        containers = [*container.get("initContainers", []), *container["containers"]]
        (ours,) = [c for c in containers if c["name"] == "extender"]
        names = {"NUMA_EXTENDER_LEASE", "NUMA_EXTENDER_STANDBY_READY", "NUMA_EXTENDER_OWN_URL"}
        given = {e["name"][14:].lower(): e["value"] for e in ours["env"] if e["name"] in names}
        self.settings = Settings.model_validate({k: v.replace("$(POD_IP)", "10.0.0.1") for k, v in given.items()})
        self.start(self.deployment["spec"]["replicas"])

    def start(self, count: int) -> None:
        for _ in range(count):
            self.pods.append(Pod(f"pod-{self.made}"))
            self.made += 1
        self.elect()

    def elect(self) -> None:
        """One leads where there is a lease, all where there is none."""
        if self.settings.lease == "off":
            for pod in self.pods:
                pod.leads = True
        elif self.pods and not any(pod.leads for pod in self.pods):
            self.pods[0].leads = True

    def ready(self, pod: Pod) -> bool:
        """As /readyz answers."""
        return pod.listed and (pod.leads or self.settings.standby_ready)

    def endpoints(self) -> list[Pod]:
        """Whom the Service leads to."""
        everybody = self.service["spec"].get("publishNotReadyAddresses", False)
        return [pod for pod in self.pods if everybody or self.ready(pod)]

    def binds(self, pod: Pod) -> bool:
        """Whether a bind call to *pod* ends in a binding: by itself, or passed on."""
        return pod.leads or bool(self.settings.own_url)

    def disruptions_allowed(self) -> int:
        """Healthy pods above the desired number, which follows from the replicas and `maxUnavailable`."""
        expected: int = self.deployment["spec"]["replicas"]
        desired = expected - _amount(self.budget["spec"]["maxUnavailable"], expected)
        return max(0, sum(map(self.ready, self.pods)) - desired)

    def evict(self, pod: Pod) -> bool:
        """The eviction API's answer: a ready pod needs the budget, another one may go under AlwaysAllow."""
        always = self.budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
        allowed = self.disruptions_allowed() > 0 or (always and not self.ready(pod))
        if allowed:
            self.pods.remove(pod)
            self.elect()
        return allowed


def _amount(value: int | str, whole: int) -> int:
    """A number, or a percentage rounded up."""
    return value if isinstance(value, int) else math.ceil(whole * int(value.rstrip("%")) / 100)


def cluster(recipe: str) -> Cluster:
    objects = rendered(recipe)
    return Cluster(
        deployment=named(objects, "Deployment", "numa-extender"),
        service=named(objects, "Service", "numa-extender"),
        budget=named(objects, "PodDisruptionBudget", "numa-extender"),
    )


def drain(found: Cluster) -> bool:
    """Every pod's node is drained, one after the other; a pod that went is replaced. Whether it ends."""
    for pod in list(found.pods):
        if not found.evict(pod):
            return False
        found.start(1)
    return True


def roll(found: Cluster) -> bool:
    """Every pod is replaced, as the strategy says; whether all new ones become available."""
    strategy, replicas = found.deployment["spec"]["strategy"], found.deployment["spec"]["replicas"]
    old = list(found.pods)
    if strategy["type"] == "Recreate":
        found.pods.clear()
        found.start(replicas)
        return all(map(found.ready, found.pods))
    surge = _amount(strategy["rollingUpdate"]["maxSurge"], replicas)
    unavailable = _amount(strategy["rollingUpdate"]["maxUnavailable"], replicas)
    for _ in range(4 * replicas):
        if len(found.pods) < replicas + surge and len(found.pods) - len(old) < replicas:
            found.start(1)
        elif old and sum(map(found.ready, found.pods)) > replicas - unavailable:
            found.pods.remove(old.pop(0))
            found.elect()
    return not old and len(found.pods) == replicas and all(map(found.ready, found.pods))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_drain_ends(recipe: str) -> None:
    assert drain(cluster(recipe))


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_rollout_ends(recipe: str) -> None:
    assert roll(cluster(recipe))


def test_of_two_one_may_go_and_not_both() -> None:
    found = cluster("overlays/replicas")
    first, second = found.pods

    assert found.evict(first)
    assert not found.evict(second)


@pytest.mark.parametrize("recipe", RECIPES)
def test_whoever_is_behind_the_service_brings_about_bindings(recipe: str) -> None:
    found = cluster(recipe)

    assert found.endpoints()
    assert all(map(found.binds, found.endpoints()))


def test_of_several_only_those_that_have_listed_are_behind_the_service() -> None:
    found = cluster("overlays/replicas")
    found.pods[1].listed = False

    assert found.endpoints() == [found.pods[0]]


def test_a_rollout_of_several_is_never_without_a_ready_one() -> None:
    strategy = named(rendered("overlays/replicas"), "Deployment", "numa-extender")["spec"]["strategy"]

    assert strategy["type"] == "RollingUpdate"
    assert strategy["rollingUpdate"]["maxUnavailable"] == 0


OLD: dict[str, Any] = {"standby_ready": False, "own_url": "", "everybody": True, "strategy": {"type": "Recreate"}}


def test_a_standby_that_is_never_ready_was_the_fault() -> None:
    """As the recipe was at first: the leader's eviction is refused for ever, and a standby is behind the Service."""
    found = copy.deepcopy(cluster("overlays/replicas"))
    found.settings = found.settings.model_copy(update={k: OLD[k] for k in ("standby_ready", "own_url")})
    found.service["spec"]["publishNotReadyAddresses"] = OLD["everybody"]
    found.deployment["spec"]["strategy"] = OLD["strategy"]

    assert found.disruptions_allowed() == 0
    assert not all(map(found.binds, found.endpoints()))
    assert not drain(copy.deepcopy(found))
    assert not roll(found)
