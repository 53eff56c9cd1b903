"""The pods of the drill."""

from datetime import UTC, datetime
from random import Random
from typing import Any

from tests.drill.machines import GPU, NIC

Json = dict[str, Any]
BEGINNING = 1_767_225_600


def make_pod(number: int, random: Random, now: float) -> Json:
    """A pod: mostly Guaranteed with whole CPUs, one or two containers, now and then devices or an init container."""
    burstable = random.random() < 0.1
    containers = [_container(f"c{i}", random, burstable=burstable) for i in range(random.choice((1, 1, 1, 2)))]
    spec: Json = {"containers": containers}
    if random.random() < 0.1:
        spec["initContainers"] = [_container("init", random, burstable=burstable, devices=False)]
    return {
        "metadata": {
            "name": f"p{number}",
            "namespace": "default",
            "uid": f"uid-{number}",
            "creationTimestamp": datetime.fromtimestamp(BEGINNING + int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        },
        "spec": spec,
        "status": {"phase": "Pending", "qosClass": "Burstable" if burstable else "Guaranteed"},
    }


def _container(name: str, random: Random, *, burstable: bool, devices: bool = True) -> Json:
    amounts = {"cpu": str(random.choice((1, 2, 2, 3, 4, 4, 6, 8))), "memory": f"{random.choice((1, 1, 2, 3, 5, 8))}Gi"}
    if burstable:
        return {"name": name, "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}
    if devices and random.random() < 0.2:
        amounts[random.choice((GPU, GPU, NIC))] = str(random.choice((1, 1, 2)))
    return {"name": name, "image": "i", "resources": {"requests": amounts, "limits": amounts}}


def requested(pod: Json) -> dict[str, int]:
    """What kube-scheduler counts: the sum over the containers, or an init container if it wants more."""
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for resource, amount in container["resources"]["requests"].items():
            total[resource] = total.get(resource, 0) + number_of(resource, amount)
    for container in pod["spec"].get("initContainers", ()):
        for resource, amount in container["resources"]["requests"].items():
            total[resource] = max(total.get(resource, 0), number_of(resource, amount))
    return total


def number_of(resource: str, amount: str) -> int:
    """A quantity: thousandths of CPUs, bytes, devices."""
    if resource == "cpu":
        return int(amount[:-1]) if amount.endswith("m") else 1000 * int(amount)
    if amount.endswith("Gi"):
        return int(amount[:-2]) << 30
    return int(amount[:-2]) << 20 if amount.endswith("Mi") else int(amount)
