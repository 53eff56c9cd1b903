"""Our linter over rendered objects."""

from collections.abc import Iterable

import yaml

from extender.__main__ import main
from extender.cli.lint import make_context
from extender.lint import Finding, lint
from extender.lint.documents import read_documents
from tests.manifests.rendering import Json


def lint_objects(objects: Iterable[Json], *texts: str) -> list[Finding]:
    """Every finding about these objects, together with further documents, for Kubernetes 1.36."""
    context = make_context(main, kube_minor=36, kubelet_version="v1.36.0")
    every = [*(yaml.safe_dump(o) for o in objects), *texts]
    located = [d for i, text in enumerate(every) for d in read_documents(text.encode(), f"{i}")]
    return list(lint(located, context))
