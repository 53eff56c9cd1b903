"""The commands for people: the same from a server as from files, in every form, and plain words when it goes wrong."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from extender.__main__ import COMMANDS, main
from extender.cli.client import complete_node
from extender.samples.nodes import Workload
from tests.cli.conftest import Run
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS


def _commands(manifest: str) -> dict[str, list[str]]:
    return {
        "what-if": ["what-if", "-f", manifest, "--explain"],
        "hypothetical": ["what-if", "-f", manifest, "--copy", "node-a", "--empty", "--machine", "dual-64"],
        "capacity": ["capacity", "-f", manifest, "-f", manifest],
        "nodes": ["nodes"],
        "map": ["map", "node-a"],
    }


def _steady(document: Any) -> Any:  # noqa: ANN401 - JSON
    """Without what depends on when it was asked."""
    if isinstance(document, dict):
        return {key: _steady(value) for key, value in document.items() if key != "heard_seconds_ago"}
    return [_steady(each) for each in document] if isinstance(document, list) else document


@pytest.mark.parametrize("command", ["what-if", "hypothetical", "capacity", "nodes", "map"])
def test_a_server_and_report_files_answer_alike_in_every_form(
    run: Run, manifest: str, reports: list[str], server: str, command: str
) -> None:
    args = _commands(manifest)[command]

    offline = json.loads(run(*args, *reports, "-o", "json").stdout)
    remote = json.loads(run(*args, "--server", server, "-o", "json").stdout)
    as_yaml = yaml.safe_load(run(*args, *reports, "-o", "yaml").stdout)
    table = run(*args, *reports).stdout

    assert _steady(offline) == _steady(remote) == _steady(as_yaml)
    assert "node-a" in table
    assert max(map(len, table.splitlines())) <= 110


def test_free_cpus_that_are_not_known_are_not_a_number(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps({**report_of(sample("lost")), "state": {}}))

    (row,) = (line for line in run("nodes", "--report", str(file)).stdout.splitlines() if "lost" in line)
    head = run("map", "lost", "--report", str(file)).stdout.splitlines()[0]

    assert " ? " in row
    assert "/32" not in row
    assert "free CPUs of 32 unknown" in head


def test_a_node_whose_kubelet_gives_no_cpus_alone_is_not_shown_as_full(run: Run, tmp_path: Path) -> None:
    node = sample("plain", cpuManagerPolicy="none", topologyManagerPolicy="none", memoryManagerPolicy="None")
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report_of(node)))

    (row,) = (line for line in run("nodes", "--report", str(file)).stdout.splitlines() if "plain" in line)
    assert "No node is known that matches." in run("nodes", "-l", "a=b", "--report", str(file)).stdout
    head = run("map", "plain", "--report", str(file)).stdout.splitlines()[0]

    assert "32 shared" in row
    assert "0/32" not in row
    assert "32 CPUs shared" in head


def test_what_if_says_where_and_why_not(run: Run, manifest: str, reports: list[str]) -> None:
    output = run("what-if", "-f", manifest, "--explain", *reports).stdout

    assert "Deployment default/solver (Guaranteed) requests 12 cpu, 2Gi memory" in output
    assert "✓ aligned" in output
    assert "would be aligned: 8 CPUs instead of 12 in container app" in output
    assert "app: takes CPUs 1-6,17-22" in output
    assert "of 2 nodes: 1 aligned, 1 refused" in output


def test_changes_of_a_copy_come_from_options(run: Run, manifest: str, reports: list[str], tmp_path: Path) -> None:
    added = tmp_path / "added.json"
    added.write_text(json.dumps(pod_of(8)))

    def outcome(*args: str) -> str:
        output = run("what-if", "-f", manifest, "--copy", "node-a", *args, *reports, "-o", "json").stdout
        (node,) = json.loads(output)["nodes"]
        return str(node["outcome"])

    assert outcome() == "topology"
    assert outcome("--set", "topologyManagerPolicy=best-effort") == "fits"
    assert outcome("--remove-pod", "demo/w-0") == "fits"
    assert outcome("--empty") == "fits"
    assert outcome("--empty", "--add-pod", str(added), "--add-pod", str(added)) == "topology"
    assert outcome("--set", "cpuManagerPolicyOptions.full-pcpus-only=true", "--kubelet-version", "1.30.0") == "topology"


WITH_OPTION = ["--kubelet-version", "v1.32.4", "--set", "cpuManagerPolicyOptions.full-pcpus-only=true"]


@pytest.mark.parametrize(
    "gate",
    [["--feature-gate", "CPUManagerPolicyOptions=false"], ["--set", "featureGates.CPUManagerPolicyOptions=false"]],
)
def test_a_feature_gate_that_is_off_is_the_kubelet_s_start_error(
    run: Run, manifest: str, reports: list[str], gate: list[str]
) -> None:
    machine = ["what-if", "-f", manifest, *reports, "--machine", "dual-64", *WITH_OPTION]

    starts = run(*machine)
    refused = run(*machine, *gate, code=1)

    assert starts.exit_code == 0, starts.output
    assert 'require feature gates "CPUManager", "CPUManagerPolicyOptions" enabled' in refused.output


def test_gates_that_are_not_named_stay_as_they_are(run: Run, manifest: str, reports: list[str]) -> None:
    for command in ("what-if", "capacity"):
        args = [command, "-f", manifest, *reports, "--copy", "node-b"]
        off = [
            "--feature-gate",
            "CPUManagerPolicyAlphaOptions=false",
            "--feature-gate",
            "TopologyManagerPolicyOptions=true",
        ]
        assert run(*args, *off).exit_code == 0


@pytest.mark.parametrize("text", ["A", "=true", "A=1", "A="])
def test_a_feature_gate_that_is_neither_true_nor_false_is_named(run: Run, manifest: str, text: str) -> None:
    result = run("what-if", "-f", manifest, "--machine", "dual-64", "--feature-gate", text, code=2)

    assert f"--feature-gate {text}" in result.output


def test_a_manifest_can_come_from_standard_input(run: Run, reports: list[str]) -> None:
    output = run("capacity", "-f", "-", *reports, stdin=json.dumps(pod_of(4))).stdout

    assert "pods are admitted on 2 nodes" in output


def test_why_shows_the_last_calls_about_a_pod(run: Run, server: str) -> None:
    for name in ("solver-0", "solver-1"):
        httpx.post(
            f"{server}/scheduler/filter",
            json=args_of(pod_of(12, name=name), "node-a", "node-b"),
            timeout=PATIENCE_SECONDS,
        ).raise_for_status()

    output = run("why", "default/solver-1", "--node", "node-a", "--server", server).stdout

    assert re.search(r"filter, \d+ s ago: 1 of 2 nodes pass", output)
    assert "✗ 1: NUMA alignment is not possible on the node now (node-a)" in output
    assert "node-a: NUMA alignment is not possible on the node now (TopologyAffinityError: " in output
    assert run("why", "uid-solver-0", "--server", server).stdout.startswith("default/solver-0")
    assert (
        "matches several pods: default/solver-0, default/solver-1"
        in run("why", "solver", "--server", server, code=1).output
    )
    unknown = run("why", "x", "--server", server, code=1).output
    assert "there is no recent call about 'x'. Name its manifest with -f: kubectl" in unknown


def test_the_map_shows_who_holds_what(run: Run, reports: list[str]) -> None:
    output = run("map", "node-a", *reports).stdout

    assert "node-a  v1.36.2  single-numa-node/container  14 of 32 CPUs free  exact" in output
    assert "│      0 -aaaa···" in output
    assert "│      8 bbbb····" in output
    assert "31Gi free" in output
    assert "b vendor.example/gpu: 0 of 1 free" in output
    assert "a demo/w-0: app CPUs 1-4,17-20, 2Gi memory on NUMA 0, gpu-0" in output


def test_the_map_of_a_node_that_is_not_known_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps({**report_of(sample("node-x")), "kubelet_version": None}))

    output = run("map", "node-x", "--report", str(file)).stdout

    assert "too little is known" in output
    assert "kubelet_version: unknown" in output


FAULTS: dict[str, tuple[list[str], str]] = {
    "no file": (["what-if", "-f", "nowhere.yaml"], "nowhere.yaml: No such file"),
    "no report": (["nodes", "--report", "nowhere.json"], "nowhere.json: No such file"),
    "no server": (["nodes", "--server", "http://127.0.0.1:9"], "--server http://127.0.0.1:9: no answer"),
    "no URL": (["nodes", "--server", "127.0.0.1"], "--server 127.0.0.1/: no answer"),
    "no token": (["nodes", "--token-file", "nowhere"], "nowhere: No such file"),
    "no certificates": (["nodes", "--ca-file", "nowhere"], "nowhere: No such file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_goes_wrong_is_said_in_plain_words(run: Run, fault: str) -> None:
    args, words = FAULTS[fault]

    output = run(*args, code=1).output

    assert words in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ("a: [", "not YAML"),
        ("[]", "[] is not an object"),
        ("kind: Service", "nothing with a pod template: Service"),
        ("spec: {containers: [{name: a, resources: {limits: {cpu: x}}}]}", "containers[0].resources.limits.cpu: 'x'"),
    ],
)
def test_a_bad_manifest_is_told_with_its_path(run: Run, reports: list[str], manifest: str, words: str) -> None:
    assert words in run("what-if", "-f", "-", *reports, code=1, stdin=manifest).output


def test_options_that_make_no_sense_are_told(run: Run, manifest: str, reports: list[str], tmp_path: Path) -> None:
    no_report = tmp_path / "no.json"
    no_report.write_text("{}")

    assert "add one with --copy" in run("what-if", "-f", manifest, "--empty", *reports, code=2).output
    assert "FIELD=VALUE" in run("what-if", "-f", manifest, "--copy", "node-a", "--set", "x", *reports, code=2).output
    assert "not a node report" in run("nodes", "--report", str(no_report), code=1).output
    assert "no report of node 'x'" in run("map", "x", *reports, code=1).output
    assert "'--policy': 'strict' is not one of" in run("nodes", "--policy", "strict", *reports, code=2).output


def test_every_command_has_help_and_completion(run: Run, server: str) -> None:
    overview = run("--help").stdout

    for name in COMMANDS:
        assert name in overview
        assert run(name, "--help").stdout.startswith("Usage: ")
    assert isinstance(main, click.Group)
    command = main.get_command(click.Context(main), "map")
    assert command is not None
    context = command.make_context("map", ["node-a", "--server", server], resilient_parsing=True)
    assert complete_node(context, command.params[0], "node-") == ["node-a", "node-b"]
    context.params["server"] = "http://127.0.0.1:9"
    assert complete_node(context, command.params[0], "node-") == []


def test_a_pod_that_is_split_or_not_managed_is_never_shown_as_aligned(run: Run, manifest: str, tmp_path: Path) -> None:
    busy = [Workload(name="w", copies=2, resources={"cpu": 8, "memory": "2Gi"})]
    split = sample("split", workloads=busy, topologyManagerPolicy="best-effort")
    plain = sample("plain", cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none")
    options = []
    for node in (split, plain):
        file = tmp_path / f"{node.name}.json"
        file.write_text(json.dumps(report_of(node)))
        options += ["--report", str(file)]

    table = run("what-if", "-f", manifest, *options).stdout
    answers = json.loads(run("what-if", "-f", manifest, *options, "-o", "json").stdout)["nodes"]
    counted = run("capacity", "-f", manifest, *options).stdout

    assert "◐ split" in table
    assert "· not managed" in table
    assert "the pod is split over NUMA 0,1" in table
    assert "✓" not in table
    assert [(each["outcome"], each["alignment"], each["numa"]) for each in answers] == [
        ("fits", "not-managed", []),
        ("fits", "split", [0, 1]),
    ]
    assert "0 aligned, 1 split, 2 not managed" in counted


BUNDLE = """
kind: Service
spec: {ports: [{port: 80}]}
---
kind: List
items:
  - kind: Rollout
    metadata: {name: web}
    spec: {replicas: 2, template: {spec: {containers: [{name: c, resources: {limits: {cpu: 4, memory: 1Gi}}}]}}}
---
kind: PyTorchJob
metadata: {name: train}
spec:
  pytorchReplicaSpecs:
    Worker: {replicas: 3, template: {spec: {containers: [{name: c, resources: {limits: {cpu: 8, memory: 1Gi}}}]}}}
"""


def test_a_plan_of_what_helm_and_kubectl_print(run: Run, reports: list[str]) -> None:
    printed = run("plan", "-f", "-", *reports, "--exit-code", stdin=BUNDLE)
    document = json.loads(run("plan", "-f", "-", *reports, "-o", "json", stdin=BUNDLE).stdout)

    assert [pod["name"] for pod in document["pods"]] == [
        *("web-0", "web-1"),
        *("train-worker-2", "train-worker-3", "train-worker-4"),
    ]
    assert document["summary"]["placed"] == document["summary"]["aligned"] == 5
    assert "5 of 5 pods have a node: 5 aligned" in printed.stdout
    assert "skipped, because they have no pod template: 1 Service" in printed.stderr


def test_all_or_nothing_holds_every_pod_back(run: Run, reports: list[str]) -> None:
    much = BUNDLE.replace("replicas: 3", "replicas: 30")

    some = run("plan", "-f", "-", *reports, "--exit-code", stdin=much, code=4)
    none = run("plan", "-f", "-", *reports, "--all-or-nothing", "--exit-code", stdin=much, code=4)

    assert "0 of 32 pods have a node" not in some.stdout
    assert "0 of 32 pods have a node" in none.stdout
    assert "held back: another pod of the plan has no node" in none.stdout


def test_exit_codes_tell_aligned_from_split_and_refused(run: Run, manifest: str, tmp_path: Path) -> None:
    busy = [Workload(name="w", copies=2, resources={"cpu": 8, "memory": "2Gi"})]

    def code_on(policy: str, workloads: list[Workload], code: int, *more: str) -> None:
        file = tmp_path / "node.json"
        file.write_text(json.dumps(report_of(sample(workloads=workloads, topologyManagerPolicy=policy))))
        for command in ("what-if", "capacity"):
            run(command, "-f", manifest, "--report", str(file), *more, code=code)

    code_on("single-numa-node", [], 0, "--exit-code")
    code_on("best-effort", busy, 3, "--exit-code")
    code_on("single-numa-node", busy, 4, "--exit-code")
    code_on("single-numa-node", busy, 0)


def test_the_list_of_commands_shows_a_whole_sentence_for_each() -> None:
    output = CliRunner().invoke(main, ["--help"], terminal_width=80).output

    for command in COMMANDS:
        assert re.search(rf"^  {command} +[A-Z].*[^.]\.$", output, re.MULTILINE), output


def test_machines_are_listed_and_every_command_has_a_short_help(run: Run, reports: list[str]) -> None:
    assert "dual-64" in run("machines", *reports).stdout
    for command in COMMANDS:
        assert run(command, "-h").stdout == run(command, "--help").stdout


TYPED: dict[str, tuple[list[str], str]] = {
    "node": (["--node", "x"], "--node x: there is no report of node 'x'"),
    "copy": (["--copy", "x", "--empty"], "--copy x: "),
    "machine": (["--copy", "node-a", "--machine", "x"], "--machine x: 'x' is none of"),
    "setting": (["--copy", "node-a", "--set", "topologyManagerPolicy=x"], "--set topologyManagerPolicy: "),
    "kubelet": (["--copy", "node-a", "--kubelet-version", "1.3"], "--kubelet-version 1.3: "),
    "removed": (["--copy", "node-a", "--remove-pod", "a/b"], "--remove-pod a/b: the node has no pod"),
}


@pytest.mark.parametrize("fault", TYPED)
def test_faults_name_the_flag_that_was_typed(run: Run, manifest: str, reports: list[str], fault: str) -> None:
    args, words = TYPED[fault]

    output = run("what-if", "-f", manifest, *args, *reports, code=1).output

    assert f"Error: {words}" in output


@pytest.mark.parametrize("command", ["plan", "capacity", "what-if"])
def test_faults_name_the_file_that_was_typed(
    run: Run, manifest: str, reports: list[str], tmp_path: Path, command: str
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("spec: {containers: [{name: a, resources: {limits: {cpu: x}}}]}")

    output = run(command, "-f", manifest, "-f", str(bad), *reports, code=1).output
    added = run("what-if", "-f", manifest, "--copy", "node-a", "--add-pod", str(bad), *reports, code=1).output

    assert f"Error: -f {bad}, spec.containers[0].resources.limits.cpu: 'x' is not a quantity" in output
    assert f"Error: --add-pod {bad}, spec.containers[0].resources.limits.cpu: 'x' is not a quantity" in added


def test_faults_name_the_variable_that_was_set(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMA_EXTENDER_TOKEN_FILE", "nowhere")
    assert "Error: NUMA_EXTENDER_TOKEN_FILE nowhere: No such file" in run("nodes", code=1).output
    assert "Error: --token-file gone: No such file" in run("nodes", "--token-file", "gone", code=1).output

    monkeypatch.delenv("NUMA_EXTENDER_TOKEN_FILE")
    monkeypatch.setenv("NUMA_EXTENDER_SERVER", "http://127.0.0.1:9")
    assert "Error: NUMA_EXTENDER_SERVER http://127.0.0.1:9" in run("nodes", code=1).output


def test_report_files_need_no_right_of_callers_on_loopback(
    run: Run, reports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extender of this process takes them whatever a real one allows; the other tests set the variable."""
    monkeypatch.delenv("NUMA_EXTENDER_LOOPBACK_SCOPES")

    assert "node-a" in run("nodes", *reports).stdout


def test_amounts_of_memory_have_units_and_scores_are_not_shown(
    run: Run, manifest: str, reports: list[str], server: str
) -> None:
    story = run("what-if", "-f", manifest, "--node", "node-b", "--explain", *reports).stdout
    assert "takes 2Gi of memory on NUMA" in story
    assert not re.search(r"\d{4,}", story)

    httpx.post(
        f"{server}/scheduler/prioritize",
        json=args_of(pod_of(2, name="ranked"), "node-a", "node-b"),
        timeout=PATIENCE_SECONDS,
    ).raise_for_status()
    ranked = run("why", "default/ranked", "--server", server).stdout
    assert re.search(r"^  1\. node-", ranked, re.MULTILINE)
    assert not re.search(r"^ +\d+ node-", ranked, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (["map"], "node-", ["node-a", "node-b"]),
        (["what-if", "--node"], "node-b", ["node-b"]),
        (["what-if", "--copy"], "", ["node-a", "node-b"]),
        (["why", "pod", "--node"], "node-a", ["node-a"]),
        (["capacity", "--machine"], "dual", ["dual-48", "dual-64"]),
    ],
)
def test_the_shell_completes_names(
    server: str, monkeypatch: pytest.MonkeyPatch, words: list[str], incomplete: str, expected: list[str]
) -> None:
    """As a shell asks for them: the server and its token come from variables."""
    monkeypatch.setenv("NUMA_EXTENDER_SERVER", server)

    found = ShellComplete(main, {}, "numa-extender", "_X").get_completions(words, incomplete)

    assert [each.value for each in found] == expected


def test_commands_that_ask_load_no_web_framework_and_no_numpy() -> None:
    """They take a third of a second, and a command that asks an extender has no use for them."""
    asking = sorted({module for module, _ in COMMANDS.values()} - {"demo", "doctor", "lint", "replay", "serve"})
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(f'extender.cli.{name}')\n"
    code += "print(sorted({'fastapi', 'numpy', 'pydantic'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code, *asking], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
