"""Autoscalers in the cluster. They do not call scheduler extenders, so they do not know which nodes refuse a pod.

Source: docs/autoscaling.md.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from extender.lint.catalogue import Finding, found
from extender.lint.documents import Located
from extender.lint.workloads import parts_of

SETTING: Final = "NUMA_EXTENDER_AUTOSCALING"
_STATUS: Final = ("ConfigMap", "kube-system", "cluster-autoscaler-status")
_KARPENTER: Final = "karpenter.sh"


def lint_autoscalers(documents: Sequence[Located]) -> Iterator[Finding]:
    """At most one finding about each autoscaler that the documents show, at the first document that shows it.

    The setting is known to be `off` if a document says so, or if the extender is among them and none has the setting.
    """
    settings = [setting for document in documents for setting in _settings(document)]
    status = next((document for document in documents if _identity(document) == _STATUS), None)
    if not all(setting.value in ("off", False) for setting in settings):
        return
    if not settings and not any(map(_runs_extender, documents)):
        return
    if status is not None:
        yield found("cluster-autoscaler-unasked", status.near("metadata", "name"))
    karpenter = next((document for document in documents if _is_of_karpenter(document)), None)
    if karpenter is not None:
        yield found("karpenter-unasked", karpenter.near("kind"))


def _identity(document: Located) -> tuple[str, str, str]:
    return document.text("kind"), document.text("metadata", "namespace"), document.text("metadata", "name")


def _settings(document: Located) -> Iterator[Located]:
    """The setting in a container of ours, in a ConfigMap or in an environment file."""
    for variables in (document.entries("data"), *(part.variables for part in parts_of(document))):
        if SETTING in variables:
            yield variables[SETTING]


def _runs_extender(document: Located) -> bool:
    return any(part.program == "numa-extender" for part in parts_of(document))


def _is_of_karpenter(document: Located) -> bool:
    """Whether it is an object of Karpenter, or the CustomResourceDefinition of one."""
    is_definition = document.text("kind") == "CustomResourceDefinition"
    group = document.text("spec", "group") if is_definition else document.text("apiVersion").partition("/")[0]
    return group == _KARPENTER
