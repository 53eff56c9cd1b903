"""Declared shapes: pods of which an operator wants some to be able to start at any time.

They are the entries of one ConfigMap: the key is the name of the shape, and the value is YAML with the fields of
`ShapeEntry`. Each entry is read by itself: one that cannot be read is left out with its reason, and harms no other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from itertools import islice
from typing import Annotated, Any, Final

from msgspec import Meta, field

from extender.scheduling.node_totals import pod_requests
from extender.wire.documents import YAML_MEDIA_TYPES, read_documents
from extender.wire.errors import WireError
from extender.wire.parsing import converted
from extender.wire.questions import Question
from extender.wire.workloads import PodWorkload, workload_from_json

MAX_SHAPES: Final = 32
MAX_ENTRY_CHARACTERS: Final = 8_192
MAX_NAME: Final = 63
MAX_COPIES: Final = 1000
MAX_RESOURCES: Final = 32
MAX_PRIORITY: Final = 2_000_000_000
_YAML: Final = next(iter(YAML_MEDIA_TYPES))


class ShapeEntry(Question, kw_only=True, rename="camel"):
    """One entry. `requests`: of the shape's only container, also its limits. For the others see `DeclaredShape`."""

    requests: Annotated[dict[str, str | int | float], Meta(min_length=1, max_length=MAX_RESOURCES)]
    copies: Annotated[int, Meta(ge=1, le=MAX_COPIES)] = 1
    node_selector: Annotated[dict[str, str], Meta(max_length=MAX_RESOURCES)] = field(default_factory=dict)
    tolerations: Annotated[list[dict[str, Any]], Meta(max_length=MAX_RESOURCES)] = field(default_factory=list)
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    hard: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredShape:
    """A shape. `copies`: how many pods of it must be able to start, beside those that run.

    `hard`: other pods are kept away from the last room for it while another node fits them, and not only ranked.
    `document`: such a pod, as a question has it.
    """

    name: str
    copies: int
    priority: int
    is_hard: bool
    node_selector: Mapping[str, str]
    document: Mapping[str, Any]
    workload: PodWorkload

    @property
    def requests_milli(self) -> Mapping[str, int]:
        """In thousandths of the resource's unit, without zero amounts."""
        return pod_requests(self.workload.pod, {})


@dataclass(frozen=True, slots=True)
class DeclaredShapes:
    """The shapes of a ConfigMap, and why the other entries cannot be read; both by name."""

    shapes: Mapping[str, DeclaredShape] = dataclass_field(default_factory=dict)
    unread: Mapping[str, str] = dataclass_field(default_factory=dict)


def read_shapes(data: Mapping[str, Any]) -> DeclaredShapes:
    """The shapes in the data of a ConfigMap. Of more than `MAX_SHAPES` entries the first ones by name are read."""
    shapes, unread = dict[str, DeclaredShape](), dict[str, str]()
    for name in islice(sorted(data), 2 * MAX_SHAPES):
        if len(shapes) == MAX_SHAPES:
            unread[name] = f"there are more than {MAX_SHAPES} shapes"
            continue
        try:
            shapes[name] = read_shape(name, data[name])
        except WireError as error:
            unread[name] = str(error)
    return DeclaredShapes(shapes, unread)


def read_shape(name: str, text: object) -> DeclaredShape:
    """One entry. Raises WireError, which names the field and the reason."""
    if len(name) > MAX_NAME:
        raise WireError("", f"the name has more than {MAX_NAME} characters")
    if not isinstance(text, str) or len(text) > MAX_ENTRY_CHARACTERS:
        raise WireError("", f"a text of at most {MAX_ENTRY_CHARACTERS} characters is expected")
    documents = read_documents(text.encode(), _YAML)
    if len(documents) != 1:
        raise WireError("", f"one document is expected, not {len(documents)}")
    entry = converted(documents[0], ShapeEntry, "")
    resources = {"requests": entry.requests, "limits": entry.requests}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "shape", "resources": resources}],
            "nodeSelector": entry.node_selector,
            "tolerations": entry.tolerations,
            "priority": entry.priority,
        },
    }
    shape = DeclaredShape(
        name=name,
        copies=entry.copies,
        priority=entry.priority,
        is_hard=entry.hard,
        node_selector=entry.node_selector,
        document=document,
        workload=workload_from_json(document),
    )
    if not shape.requests_milli:
        raise WireError("requests", "no resource is requested")
    return shape
