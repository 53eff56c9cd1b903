"""Random small nodes and pods, as scenario documents: what property tests draw from."""

from typing import Any

from hypothesis import strategies as st

from extender.kubelet.rules import NEWEST_MINOR

Json = dict[str, Any]
MI = 1 << 20

CPU_OPTIONS = (
    "full-pcpus-only",
    "distribute-cpus-across-numa",
    "align-by-socket",
    "distribute-cpus-across-cores",
    "strict-cpu-reservation",
    "prefer-align-cpus-by-uncorecache",
)
VERSIONS = tuple(f"1.{minor}" for minor in range(27, NEWEST_MINOR + 1))


@st.composite
def machines(draw: st.DrawFn) -> Json:
    """One to four NUMA nodes on one or two sockets, up to four cores each, with or without SMT."""
    sockets = draw(st.integers(1, 2))
    numa_per_socket = draw(st.integers(1, 2))
    threads = draw(st.integers(1, 2))
    caches = draw(st.booleans())
    nodes = sockets * numa_per_socket
    cores = [draw(st.integers(1, 4)) for _ in range(nodes)]
    cpus, core = [], 0
    for numa, count in enumerate(cores):
        for local in range(count):
            uncore = numa * 8 + local // 2 if caches else None
            cpus += [[core + t * sum(cores), core, numa // numa_per_socket, numa, uncore] for t in range(threads)]
            core += 1
    numa_nodes = [
        {
            "id": i,
            "memory": draw(st.integers(200, 400)) * MI,
            "hugepages": {"2Mi": draw(st.integers(0, 40))},
            "distances": [10 if i == j else draw(st.sampled_from([12, 20, 32])) for j in range(nodes)],
        }
        for i in range(nodes)
    ]
    return {"cpus": cpus, "numa": numa_nodes}


@st.composite
def kubelets(draw: st.DrawFn) -> Json:
    """A configuration that mostly starts; some do not, which both sides must agree on."""
    reserved = draw(st.integers(1, 2))
    memory = draw(st.sampled_from(["None", "Static"]))
    topology_options = {}
    if draw(st.booleans()):
        topology_options["prefer-closest-numa-nodes"] = "true"
    return {
        "cpuManagerPolicy": draw(st.sampled_from(["static", "static", "static", "none"])),
        "cpuManagerPolicyOptions": dict.fromkeys(
            draw(st.lists(st.sampled_from(CPU_OPTIONS), max_size=2, unique=True)), "true"
        ),
        "memoryManagerPolicy": memory,
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "16Mi"}}] if memory == "Static" else [],
        "topologyManagerPolicy": draw(
            st.sampled_from(["none", "best-effort", "restricted", "restricted", "single-numa-node"])
        ),
        "topologyManagerScope": draw(st.sampled_from(["container", "pod"])),
        "topologyManagerPolicyOptions": topology_options,
        "reservedSystemCPUs": "",
        "reservation": {"cpu": str(reserved), "memory": "16Mi"} if memory == "Static" else {"cpu": str(reserved)},
        "featureGates": {"CPUManagerPolicyAlphaOptions": True, "TopologyManagerPolicyAlphaOptions": True},
    }


DISTRIBUTION_FIXES = ("distribute_inside_hint", "distribute_whole_groups")


@st.composite
def devices(draw: st.DrawFn, machine: Json) -> Json:
    """Up to two resources; devices on one node, on several, or nowhere; a few unhealthy."""
    ids = [n["id"] for n in machine["numa"]]
    numa = st.one_of(
        st.lists(st.sampled_from(ids), min_size=1, max_size=1),
        st.lists(st.sampled_from(ids), min_size=1, max_size=2, unique=True).map(sorted),
        st.none(),
    )
    names = draw(st.lists(st.sampled_from(["gpu.example/gpu", "nic.example/vf"]), max_size=2, unique=True))
    return {
        name: [
            {"id": f"{name[:3]}-{i}", "numa": draw(numa), "healthy": draw(st.sampled_from([True, True, True, False]))}
            for i in range(draw(st.integers(1, 5)))
        ]
        for name in names
    }


@st.composite
def containers(draw: st.DrawFn, name: str, resources: list[str], *, init: bool) -> Json:
    """A container whose requests equal its limits, most of the time with whole CPUs."""
    amounts: Json = {
        "cpu": draw(st.sampled_from(["1", "1", "2", "2", "3", "4", "6", "500m", "1500m", "2000m"])),
        "memory": f"{draw(st.integers(1, 300))}Mi",
    }
    if draw(st.integers(0, 4)) == 0:
        amounts["hugepages-2Mi"] = f"{2 * draw(st.integers(0, 20))}Mi"
    for resource in resources:
        if draw(st.integers(0, 2)) == 0:
            amounts[resource] = str(draw(st.integers(0, 3)))
    container: Json = {"name": name, "image": "img", "resources": {"requests": amounts, "limits": amounts}}
    if init and draw(st.integers(0, 2)) == 0:
        container["restartPolicy"] = "Always"
    return container


@st.composite
def pods(draw: st.DrawFn, number: int, resources: list[str]) -> Json:
    """A pod with up to two init containers and one to three app containers; now and then not Guaranteed."""
    spec: Json = {
        "containers": [
            draw(containers(f"c{i}", resources, init=False)) for i in range(draw(st.sampled_from([1, 1, 2, 3])))
        ]
    }
    inits = draw(st.sampled_from([0, 0, 1, 2]))
    if inits:
        spec["initContainers"] = [draw(containers(f"i{i}", resources, init=True)) for i in range(inits)]
    if draw(st.integers(0, 7)) == 0:
        first = spec["containers"][0]["resources"]
        spec["containers"][0]["resources"] = {
            "requests": {"cpu": "1"},
            "limits": {k: v for k, v in first["limits"].items() if "/" in k},
        }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"p{number}", "namespace": "default", "uid": f"uid-{number}"},
        "spec": spec,
    }


@st.composite
def scenarios(draw: st.DrawFn, versions: tuple[str, ...] = VERSIONS) -> Json:
    """A node and a short history on it."""
    machine = draw(machines())
    plugged = draw(devices(machine))
    steps: list[Json] = []
    alive: list[str] = []
    for number in range(draw(st.integers(2, 6))):
        pod = draw(pods(number, list(plugged)))
        steps.append({"op": "admit", "pod": pod})
        alive.append(pod["metadata"]["uid"])
        if draw(st.booleans()):
            steps.append({"op": "start", "uid": pod["metadata"]["uid"]})
        if draw(st.integers(0, 3)) == 0:
            steps.append({"op": "remove", "uid": alive.pop(draw(st.integers(0, len(alive) - 1)))})
    return {
        "id": "drawn",
        "kubelet_version": draw(st.sampled_from(versions)),
        "machine": machine,
        "kubelet": draw(kubelets()),
        "rules": dict.fromkeys(draw(st.sampled_from([(), (), DISTRIBUTION_FIXES, ("spread_by_topology",)])), True),
        "devices": plugged,
        "steps": steps,
    }
