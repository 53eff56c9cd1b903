"""For every rule about slices and claims: documents that trip it, and the same ones mended."""

from tests.lint.building import Case, as_yaml, case

NUMA = {"resource.kubernetes.io/numaNode": {"int": 0}}


def device(name: str = "gpu-0", **attributes: object) -> dict[str, object]:
    return {"name": name, "attributes": {**NUMA, **attributes}}


def a_slice(*devices: object, driver: str = "gpu.example.com", count: int = 2, **spec: object) -> str:
    pool = {"name": "node-a", "generation": 1, "resourceSliceCount": count}
    document = {"kind": "ResourceSlice", "spec": {"driver": driver, "pool": pool, "devices": [*devices], **spec}}
    return as_yaml(document)


def counters(driver: str) -> str:
    return a_slice(driver=driver, sharedCounters=[{"name": "c", "counters": {"slices": {"value": "7"}}}])


def claim(count: int, *, kind: str = "ResourceClaim", **constraint: object) -> str:
    requests = [{"name": "a", "exactly": {"deviceClassName": "gpu", "count": count}}, {"name": "b", "exactly": {}}]
    spec: dict[str, object] = {"devices": {"requests": requests, "constraints": [constraint]}}
    document = {"kind": kind, "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec}
    return as_yaml(document)


DEVICES = {
    "dra-list-attribute": [
        case(a_slice(device(x={"strings": ["a"]})), a_slice(device(x={"string": "a"}))),
        case(a_slice(device(x={"ints": [1]}), device("gpu-1", x={"ints": [1]})), a_slice(device(), device("gpu-1"))),
    ],
    "dra-no-numa-node": [
        case(a_slice({"name": "gpu-0"}), a_slice(device())),
        case(
            a_slice({"name": "gpu-0", "attributes": {"pcieRoot": {"string": "p"}}}),
            a_slice({"name": "gpu-0", "attributes": {"dra.net/numaNode": {"int": 1}}}),
        ),
        case(
            a_slice({"name": "gpu-0", "attributes": {"x/pcieRoot": {"string": "p"}}}),
            a_slice({"name": "gpu-0", "attributes": {"resource.kubernetes.io/pcieRoot": {"string": "p"}}}),
        ),
    ],
    "dra-slice-count": [
        Case((a_slice(device()), a_slice(device("b"), count=3)), (a_slice(device()), a_slice(device("b"))))
    ],
    "dra-pools-of-one-name": [
        Case((counters("a.example.com"), counters("b.example.com")), (counters("a.example.com"), a_slice(device()))),
    ],
    "dra-distinct-count": [
        case(claim(2, distinctAttribute="a.example.com/x"), claim(1, distinctAttribute="a.example.com/x")),
        case(
            claim(2, distinctAttribute="a.example.com/x", requests=["a"]),
            claim(2, distinctAttribute="a.example.com/x", requests=["b"]),
        ),
        case(
            claim(2, kind="ResourceClaimTemplate", distinctAttribute="a.example.com/x"),
            claim(2, kind="ResourceClaimTemplate", matchAttribute="a.example.com/x"),
        ),
    ],
    "dra-cpu-two-sockets": [
        case(
            a_slice(device("cpudevsocket000"), device("cpudevsocket001"), driver="dra.cpu"),
            a_slice(device("cpudevsocket000"), driver="dra.cpu"),
        ),
    ],
}
