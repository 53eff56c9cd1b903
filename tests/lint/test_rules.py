"""Every rule reports its pitfall, and nothing else."""

import dataclasses

import pytest
from click.testing import CliRunner

from extender.__main__ import main
from extender.cli.lint import make_context
from extender.lint import RULES, Context, Finding, Severity, lint
from extender.lint.catalogue import found
from extender.lint.documents import Located, read_documents
from extender.wire.errors import WireError
from tests.lint.building import Case, daemonset, deployment, kubelet, scheduler
from tests.lint.cases import CASES

ALL_ROUTES = frozenset(f"/scheduler/{verb}" for verb in ("filter", "prioritize", "preempt", "bind"))


@pytest.fixture(scope="module")
def context() -> Context:
    """With every verb that the protocol has, whatever the service has by now."""
    made = make_context(main, kube_minor=36, kubelet_version="v1.36.0")
    return dataclasses.replace(made, routes=ALL_ROUTES)


def _lint(texts: tuple[str, ...], context: Context) -> tuple[Finding, ...]:
    documents: list[Located] = []
    try:
        for number, text in enumerate(texts):
            documents += read_documents(text.encode(), f"{number}.yaml")
    except WireError as error:
        return (found("unreadable", Located(None, error.field, 1), reason=error.reason),)
    return lint(documents, context)


PAIRS = [(rule, case) for rule, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("rule", "case"), PAIRS, ids=[rule for rule, _ in PAIRS])
def test_it_reports_the_pitfall_and_not_the_corrected_case(rule: str, case: Case, context: Context) -> None:
    context = dataclasses.replace(context, kube_minor=case.kube, kubelet_version=case.kubelet)
    bad = [finding for finding in _lint(case.bad, context) if finding.rule == rule]
    assert bad, f"{rule} is silent"
    assert all(finding.severity is RULES[rule].severity for finding in bad)
    assert all(finding.why and finding.fix for finding in bad)
    assert all(finding.line >= 1 for finding in bad)
    context = dataclasses.replace(context, kube_minor=case.good_kube or case.kube)
    assert rule not in {finding.rule for finding in _lint(case.good, context)}


def test_every_rule_has_cases() -> None:
    assert CASES.keys() == RULES.keys()
    assert all(CASES.values())


@pytest.mark.parametrize("text", [scheduler(), kubelet(), deployment(), daemonset()])
def test_a_sound_document_has_no_finding(text: str, context: Context) -> None:
    assert _lint((text,), context) == ()


def test_findings_come_by_file_and_line(context: Context) -> None:
    findings = _lint((scheduler(percentageOfNodesToScore=5, extenders=[]), kubelet(cpuManagerPolicy="none")), context)
    assert [(f.file, f.line) for f in findings] == sorted((f.file, f.line) for f in findings)
    assert len(findings) >= 2


def test_only_start_errors_of_the_right_manager_are_told_and_each_once(context: Context) -> None:
    text = kubelet(
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        cpuManagerPolicyOptions={"no-such": "true"},
        topologyManagerPolicyOptions={"nor-such": "1"},
    )
    refused = [f for f in _lint((text,), context) if f.rule == "kubelet-does-not-start"]
    paths = sorted(finding.path for finding in refused)
    assert paths == ["cpuManagerPolicyOptions", "reservedMemory", "topologyManagerPolicyOptions"]
    assert all(f.severity is Severity.ERROR for f in refused)


def test_the_command_lists_every_rule() -> None:
    result = CliRunner().invoke(main, ["lint", "--rules"])
    assert result.exit_code == 0
    assert [line.split(maxsplit=2) for line in result.output.splitlines()] == [
        [rule.severity, f"{name}:", rule.problem] for name, rule in RULES.items()
    ]
