"""Parsing that all questions share: from the body to a validated question, and the nodes that it is about.

A bare manifest is a question too. Then the options are query parameters.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Final, TypeVar

from msgspec import Meta

from extender.answers.question import Asked
from extender.answers.snapshot import Snapshot
from extender.cluster.pods import with_default
from extender.questions.hypothetical import build
from extender.questions.subjects import Subject
from extender.replay.pod import NO_DEMAND
from extender.wire.documents import read_documents
from extender.wire.parsing import converted
from extender.wire.questions import HypotheticalNode, Question
from extender.wire.replies import about
from extender.wire.workloads import BundlePart, PodWorkload, bundle_of, workload_from_json

Q = TypeVar("Q", bound=Question)
MAX_NODES: Final = 20_000
MAX_HYPOTHETICAL: Final = 64
Names = Annotated[list[str], Meta(max_length=MAX_NODES)]
LiveNodes = Annotated[Names | None, about("Live nodes by name. Null: all of them.")]
NodeNames = Annotated[
    Names | None, about("Live nodes by name. Null: all of them, unless `hypothetical` nodes are given. Empty: none.")
]
HypotheticalNodes = Annotated[
    list[HypotheticalNode], about("Hypothetical nodes to use as well.", max_length=MAX_HYPOTHETICAL)
]


def is_manifest(document: object, key: str) -> bool:
    """Whether the document is a bare Kubernetes object and not a question (which has *key*)."""
    return isinstance(document, dict) and key not in document and bool({"kind", "spec"} & document.keys())


def read_question(asked: Asked) -> object:
    """The document of a question. Several documents become one list, as `kubectl get` prints it."""
    documents = read_documents(asked.body, asked.media_type)
    return documents[0] if len(documents) == 1 else {"kind": "List", "items": documents}


def manifests_of(asked: Asked, document: object, key: str) -> tuple[Sequence[BundlePart], list[str] | None]:
    """The workloads of a bare manifest, or of a list of them, and the nodes to ask about; none of a question.

    A question has *key*. Raises WireError if a list has no workload.
    """
    parts = bundle_of([document]).parts if is_manifest(document, key) else ()
    return parts, None if asked.node is None else list(asked.node)


def parse_question(kind: type[Q], document: object) -> Q:
    """The question in the document. Raises WireError for the first error."""
    return converted(document, kind, "")


def workload_of(asked: Asked, document: object, path: str) -> PodWorkload:
    """The workload, with what it demands by its namespace. Raises WireError."""
    workload = workload_from_json(document, path)
    return replace(workload, pod=with_default(workload.pod, asked.demands.get(workload.namespace, NO_DEMAND)))


def live_subjects(
    snapshot: Snapshot, names: Sequence[str] | None, hypothetical: Sequence[HypotheticalNode]
) -> list[Subject]:
    """The live nodes of a question: in the order of the request, without repeats.

    *names* None: all of them by name, unless there are hypothetical nodes.

    Raises:
        UnknownNodeError: one of them has no report.
    """
    return [] if names is None and hypothetical else snapshot.subjects(names)


def made_subjects(snapshot: Snapshot, hypothetical: Sequence[HypotheticalNode]) -> list[Subject]:
    """The hypothetical nodes of a question. Raises WireError if one is not possible."""
    return [build(node, f"hypothetical[{i}]", i + 1, snapshot.find) for i, node in enumerate(hypothetical)]
