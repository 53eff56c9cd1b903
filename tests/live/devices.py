"""Devices of a DRA driver on the nodes of a scene, and the claims of its pods.

The scene publishes what a driver would publish, and creates the claims. kube-scheduler allocates and reserves them. The
controllers of the control plane do not run, so `Claims.tidy` does what they do for claims of pods that have ended.
"""

from collections.abc import Collection, Sequence
from random import Random

from tests.live.api import MERGE_PATCH, Api, ApiError, Json
from tests.live.node import LiveNode
from tests.live.workload import PODS
from tests.oracle.amounts import parse_cpus

DRIVER = DEVICE_CLASS = "gpu.live.example"
NUMA = "resource.kubernetes.io/numaNode"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
FINISHED = ("Succeeded", "Failed")
DEMAND = {"numa-extender.io/alignment": "single-numa-node"}
A_NUMA_NODE = 2
"""Devices of each NUMA node."""


class Claims:
    """`allocated`: the node and the NUMA node of the device that a claim had when its pod ended, by claim."""

    def __init__(self, api: Api, nodes: Sequence[LiveNode], random: Random) -> None:
        self._api = api
        self._numa: dict[tuple[str, str], int] = {}
        self._waiting: set[str] = set()
        self.allocated: dict[str, tuple[str, int]] = {}
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        api.create(_object("DeviceClass", DEVICE_CLASS, {"selectors": [selector]}))
        for node in nodes:
            self._publish(node, random)

    def _publish(self, node: LiveNode, random: Random) -> None:
        """In any order: kube-scheduler takes the first devices that match."""
        numas = [each["id"] for each in node.scenario["machine"]["numa"] for _ in range(A_NUMA_NODE)]
        random.shuffle(numas)
        devices = [{"name": f"gpu-{i}", "attributes": {NUMA: {"int": numa}}} for i, numa in enumerate(numas)]
        self._numa |= {(node.name, f"gpu-{i}"): numa for i, numa in enumerate(numas)}
        pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": devices}
        self._api.create(_object("ResourceSlice", f"{node.name}-{DRIVER}", spec))

    def create(self, name: str) -> None:
        """A claim for one device, for the pod of this name."""
        request = {"name": "gpu", "exactly": {"deviceClassName": DEVICE_CLASS}}
        claim = _object("ResourceClaim", name, {"devices": {"requests": [request]}})
        self._api.create(claim)
        self._waiting.add(name)

    def tidy(self) -> None:
        """Note, release and delete the claims of pods that have ended or are gone."""
        claims = self._api.items(CLAIMS)
        phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in self._api.items(PODS)}
        self._waiting -= phases.keys()  # a claim without a pod, whose pod was there, is left over
        for claim in claims:
            name = claim["metadata"]["name"]
            if name in self._waiting or phases.get(name, FINISHED[0]) not in FINISHED:
                continue
            for result in _results(claim):
                self.allocated[name] = (result["pool"], self._numa[result["pool"], result["device"]])
            self._release(name)

    def _release(self, name: str) -> None:
        path = f"{CLAIMS}/{name}"
        try:
            nothing = {"status": {"reservedFor": None, "allocation": None}}
            self._api.call("PATCH", f"{path}/status", nothing, MERGE_PATCH)
            self._api.call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
            self._api.call("DELETE", path)
        except ApiError as error:
            if error.status not in (404, 409):  # 409: kube-scheduler has just written it; again the next time
                raise


def claiming_pod(pod: Json, cpus: int, *, demands: bool) -> None:
    """Make it a pod of one container with exclusive CPUs and a device. *demands*: both on one NUMA node."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    name = pod["metadata"]["name"]
    if demands:
        pod["metadata"]["annotations"] = dict(DEMAND)
    pod["spec"].pop("initContainers", None)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    resources = {"requests": amounts, "limits": amounts, "claims": [{"name": "gpu"}]}
    pod["spec"]["containers"] = [{"name": "c0", "image": "i", "resources": resources}]


def numa_of_cpus(node: LiveNode, uid: str) -> Collection[int] | None:
    """The NUMA nodes of the CPUs that the kubelet gave to the pod's first container; None: it did not admit the pod."""
    placed = node.kubelet.placements.get(uid)
    if placed is None:
        return None
    numa = {cpu[0]: cpu[3] for cpu in node.scenario["machine"]["cpus"]}
    return {numa[cpu] for cpu in parse_cpus(placed["containers"]["c0"].get("cpus", ""))}


def _object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _results(claim: Json) -> list[Json]:
    allocation = claim.get("status", {}).get("allocation") or {}
    found: list[Json] = allocation.get("devices", {}).get("results", [])
    return found
