"""From documents to findings: classifies documents, collects common facts, and runs the rules."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from extender.lint.autoscaling import lint_autoscalers
from extender.lint.catalogue import Finding, found
from extender.lint.context import Context, LintContext
from extender.lint.demands import lint_demands, lint_namespace
from extender.lint.devices import lint_devices
from extender.lint.documents import ENVIRONMENT, Located, nested
from extender.lint.kubelet import lint_kubelet, reserved_millicpu
from extender.lint.nri import KIND as NRI_POLICY
from extender.lint.nri import lint_annotations, lint_policy_config
from extender.lint.scheduler import lint_policy, lint_scheduler
from extender.lint.workloads import WORKLOADS, containers_of, lint_settings, lint_workload, parts_of, pod_of

DEADLINES: Final = {
    "filterVerb": ("NUMA_EXTENDER_FILTER_SECONDS", 1),
    "preemptVerb": ("NUMA_EXTENDER_PREEMPT_SECONDS", 1),
    "bindVerb": ("NUMA_EXTENDER_BIND_SECONDS", 2),
}
"""The setting that limits a verb, and how often it applies: a binding may first wait as long for another one."""
KUSTOMIZE: Final = ("Kustomization", "Component")
_ALERT: Final = re.compile(r"numa[-_]extender")
_GONE: Final = re.compile(r"\b(absent|up)\b")


def lint(documents: Sequence[Located], context: Context) -> tuple[Finding, ...]:
    """The findings about all documents, by file and line."""
    opened = [inner for document in documents for inner in _open(document)]
    context = replace(context, surroundings=_survey(opened, context))
    findings = {finding for document in opened for finding in _lint(document, context)}
    findings |= {*_empty_files(documents, opened), *lint_devices(opened), *lint_autoscalers(opened)}
    return tuple(sorted(findings, key=lambda f: (f.file, f.line, f.rule, f.path)))


def _open(document: Located) -> Iterator[Located]:
    """The document, the entries of a List, and the files in a ConfigMap."""
    yield document
    if document.text("kind").endswith("List"):
        for item in document.items("items"):
            yield from _open(item)
    if document.text("kind") == "ConfigMap":
        for text in document.entries("data").values():
            for inner in nested(text):
                yield from _open(inner)


def _lint(document: Located, context: Context) -> Iterator[Finding]:
    kind = document.text("kind")
    if kind in ("KubeSchedulerConfiguration", "KubeletConfiguration", "Policy", NRI_POLICY, *WORKLOADS):
        yield from _duplicate_keys(document)
    if kind == "KubeSchedulerConfiguration":
        yield from lint_scheduler(document, context)
    elif kind == "Policy" and document.get("extenders") is not None:
        yield from lint_policy(document)
    elif kind == "KubeletConfiguration":
        yield from lint_kubelet(document, context)
    elif kind == NRI_POLICY:
        yield from lint_policy_config(document, context)
    elif kind in WORKLOADS:
        yield from lint_workload(document, context)
        yield from lint_annotations(document)
        yield from lint_demands(document)
    elif kind == "Namespace":
        yield from lint_namespace(document)
    elif kind in KUSTOMIZE and document.text("apiVersion").startswith("kustomize.config.k8s.io/"):
        yield found("kustomization-not-built", document.near("kind"))
    elif kind in ("ConfigMap", ENVIRONMENT):
        yield from lint_settings(document.entries("data"), context)


def _duplicate_keys(document: Located) -> Iterator[Finding]:
    for path, line in document.duplicates:
        if path.startswith(document.path):
            place = replace(document, path=path, line=line)
            yield found("duplicate-key", place, path=path)


def _empty_files(documents: Iterable[Located], opened: Iterable[Located]) -> Iterator[Finding]:
    """Files in which nothing was checked, which is probably not intended."""
    checked = {document.file for document in opened if document.text("kind")}
    first = {document.file: document for document in reversed(tuple(documents))}
    for file, document in first.items():
        if file not in checked:
            yield found("nothing-to-check", document)


def _survey(documents: Sequence[Located], context: Context) -> LintContext:
    """The facts that rules for one document need about the others."""
    deadlines = {name: context.defaults.get(name) for name, _ in DEADLINES.values()}
    stale = None
    for document in documents:
        if document.text("kind") in WORKLOADS:
            for part in parts_of(document):
                given = {name: _number(part.variables.get(name)) for name in deadlines}
                deadlines |= {name: seconds for name, seconds in given.items() if seconds}
                stale = _number(part.variables.get("NUMA_EXTENDER_STALE_AFTER_SECONDS")) or stale
    kubelets = [document for document in documents if document.text("kind") == "KubeletConfiguration"]
    return LintContext(
        has_static_cpu=any(kubelet.text("cpuManagerPolicy") == "static" for kubelet in kubelets),
        reserved_millicpu=min(map(reserved_millicpu, kubelets), default=None),
        has_alert=any(_alerts(document) for document in documents),
        resolves_services=_resolves_services(documents),
        deadlines={
            verb: float(seconds) * times
            for verb, (name, times) in DEADLINES.items()
            if isinstance(seconds := deadlines[name], int | float)
        },
        stale_after_seconds=stale,
    )


def _number(value: Located | None) -> float | None:
    try:
        return None if value is None else float(str(value.value))
    except ValueError:
        return None


def _alerts(document: Located) -> bool:
    """Whether a Prometheus rule fires if the extender is down."""
    groups = document.items("spec", "groups") or document.items("groups")
    rules = (rule for group in groups for rule in group.items("rules"))
    return any(
        rule.text("alert") and _ALERT.search(rule.text("expr")) and _GONE.search(rule.text("expr")) for rule in rules
    )


def _resolves_services(documents: Sequence[Located]) -> bool | None:
    """Whether every kube-scheduler pod among the documents can resolve Services; None if there is no such pod."""
    known = None
    for document in documents:
        if document.text("kind") not in WORKLOADS:
            continue
        pod = pod_of(document)
        for container in containers_of(pod):
            words = " ".join((container.text("image"), *(str(w.value) for w in container.items("command"))))
            if "kube-scheduler" in words:
                on_host = pod.plain("hostNetwork") is True
                can = not on_host or pod.text("dnsPolicy") == "ClusterFirstWithHostNet"
                known = can if known is None else known and can
    return known
