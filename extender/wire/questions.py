"""Questions, validated with pydantic, and their parts that become replay values: manifests, hypothetical nodes.

Rules of this file
- A question with unknown keys is refused, so that a typo is an error that names it.
- Types are strict: a number in quotes is not a number, `true` is not 1. An error is a `WireError`.
- Types are checked here. Whether the parts fit together is checked when a node is built (`questions.hypothetical`).
"""

from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from extender.wire.errors import WireError, shown

T = TypeVar("T")
MAX_PART: Final = 128
"""Characters of a key that the path of an error repeats."""


def doc(text: str) -> Any:  # noqa: ANN401 - as pydantic declares Field
    """The description of a field in the API's schema; stands in `Annotated`."""
    return Field(description=text)


class Document(BaseModel):
    """Base of the models of JSON documents from other programs."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


def parse_object(adapter: TypeAdapter[T], value: object, field: str) -> T:
    """The value of parsed JSON. Raises WireError for the first error, with a path that begins with *field*."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _first_fault(error).below(field) from None


def _first_fault(error: ValidationError) -> WireError:
    fault = error.errors(include_url=False)[0]
    path = ""
    for part in fault["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif "[" not in part:  # the name of a union's member, such as list[str]
            path += f".{part[:MAX_PART]}" if path else part[:MAX_PART]
    if fault["type"] == "missing":
        return WireError(path, "missing")
    if fault["type"] == "extra_forbidden":
        return WireError(path, "unknown field")
    if fault["type"] == "model_type":
        return WireError(path, f"an object is expected, not {shown(fault['input'])}")
    return WireError(path, f"{fault['msg']}, not {shown(fault['input'])}")


MAX_CHANGED_PODS: Final = 512


class Question(Document):
    """Base of request bodies."""

    model_config = ConfigDict(extra="forbid")


Manifest = dict[str, Any]
"""A Kubernetes object in a question."""

Workload = Annotated[
    Manifest,
    doc(
        "A v1.Pod, a KubeVirt VirtualMachine, or an object of any kind that has one pod template, such as a "
        "Deployment, Job or Rollout. Only what admission reads is needed."
    ),
]


class TaintSpec(Question):
    """One taint of a node."""

    key: Annotated[str, doc("The key that a toleration names.")]
    value: Annotated[str, doc("May be empty.")] = ""
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], doc("`PreferNoSchedule` refuses no pod.")]


class HypotheticalNode(Question):
    """A hypothetical node. One of `report`, `machine` and `copy_of` is its base.

    The changes apply in the order of the fields below. A running node's pods keep their resources under other topology
    settings. Other changes (another CPU or memory policy, other reserved CPUs) also need `empty`.
    """

    name: Annotated[str | None, doc("Its name in the reply. Null: named after its base.")] = None
    report: Annotated[Manifest | None, doc("A full NodeReport.")] = None
    machine: Annotated[
        str | None, Field(description="A machine shape by name, see `GET /v1/machines`.", examples=["epyc-nps4-64"])
    ] = None
    copy_of: Annotated[str | None, Field(description="Name of a live node.", examples=["node-a"])] = None
    kubelet_version: Annotated[
        str | None, Field(description="Another kubelet version; null: the base's.", examples=["v1.36.2"])
    ] = None
    kubelet: Annotated[
        dict[str, Any],
        Field(
            description="Fields of KubeletConfiguration that differ from the base's. A map replaces the base's map; "
            "`featureGates` changes only the gates that it names.",
            examples=[{"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}],
        ),
    ] = {}
    rules: Annotated[
        dict[str, bool],
        Field(
            description="Behaviours that the kubelet has and its minor has not, or the reverse, by name: "
            "docs/kubernetes-versions.md lists fixes that patch releases may carry. Others stay as the base's.",
            examples=[{"distribute_inside_hint": True}],
        ),
    ] = {}
    devices: Annotated[
        dict[str, Any] | None,
        Field(
            description="Devices instead of the base's, by resource: `[{id, numa: [ids] or null, healthy}]`. Null: the "
            "base's.",
            examples=[{"vendor.example/gpu": [{"id": "gpu-0", "numa": [0]}]}],
        ),
    ] = None
    empty: Annotated[bool, doc("Remove all pods first.")] = False
    remove_pods: Annotated[
        list[str], Field(description="UIDs, or NAMESPACE/NAME as the node lists them.", max_length=MAX_CHANGED_PODS)
    ] = []
    add_pods: Annotated[
        list[Workload],
        Field(description="Pods to admit one after another. An error if one is refused.", max_length=MAX_CHANGED_PODS),
    ] = []
    labels: Annotated[dict[str, str] | None, doc("Null: the base's. For a machine: unknown, so not checked.")] = None
    taints: Annotated[list[TaintSpec] | None, doc("Null: the base's, as for `labels`.")] = None
