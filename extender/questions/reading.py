"""Parsing that all questions share: from the body to a validated question, and the nodes that it is about.

A bare manifest is a question too. Then the options are query parameters.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from extender.cluster.pods import with_default
from extender.questions.asked import Asked
from extender.questions.hypothetical import build
from extender.questions.node_context import Subject
from extender.questions.snapshot import Snapshot
from extender.wire.documents import read_documents
from extender.wire.parsing import converted
from extender.wire.questions import HypotheticalNode, Manifest, Question
from extender.wire.workloads import PodWorkload, bundle_of, workload_from_json

Q = TypeVar("Q", bound=Question)


def question_of(asked: Asked, kind: type[Q]) -> Q:
    """The question in the body. Raises WireError for the first error."""
    return converted(_document(asked), kind, "")


def pods_question_of(
    asked: Asked, kind: type[Q], key: str, entry_of: Callable[[Sequence[Manifest]], object]
) -> tuple[Q, list[str]]:
    """The question in the body. If the body is bare workloads, also their paths; no paths if the body is a question.

    A bare Kubernetes object has no *key*. *entry_of*: makes the entry of a workload in *key*.

    Raises:
        WireError: for the first error, also if a list has no workload.
    """
    document = _document(asked)
    if not isinstance(document, dict) or key in document or not {"kind", "spec"} & document.keys():
        return converted(document, kind, ""), []
    parts = bundle_of([document]).parts
    entry = entry_of([part.document for part in parts])
    return converted({**asked.options, key: entry}, kind, ""), [part.path for part in parts]


def _document(asked: Asked) -> object:
    """The document of a question. Several documents become one list, as `kubectl get` prints it."""
    documents = read_documents(asked.body, asked.media_type)
    return documents[0] if len(documents) == 1 else {"kind": "List", "items": documents}


def workload_of(asked: Asked, document: object, path: str) -> PodWorkload:
    """The workload, with the demand of its namespace. Raises WireError."""
    workload = workload_from_json(document, path)
    return replace(workload, pod=with_default(workload.pod, asked.demands))


def subjects_asked(
    snapshot: Snapshot, names: Sequence[str] | None, hypothetical: Sequence[HypotheticalNode]
) -> list[Subject]:
    """The nodes of a question: live ones in the order of *names*, without repeats, then hypothetical ones.

    *names* None: all live ones by name, unless there are hypothetical nodes.

    Raises:
        UnknownNodeError: a live node has no report.
        WireError: a hypothetical node is not possible.
    """
    live = [] if names is None and hypothetical else snapshot.subjects(names)
    made = (build(node, f"hypothetical[{i}]", i + 1, snapshot.find) for i, node in enumerate(hypothetical))
    return [*live, *made]
