"""`why`, `audit`, `decisions`, `groups`, and answers about many nodes: against a real service over HTTP.

What `why` asks of kubectl is answered by a program of that name, which is alone on the path.
"""

import json
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from extender.app import make_service
from extender.cli.output import console_for
from extender.cluster.events import PodSeen
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.samples.nodes import Workload
from extender.wire.groups import GROUP, SIZE
from extender.wire.pods import pod_from_json
from tests.cli.conftest import Run
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import A_DAY, PATIENCE_SECONDS
from tests.world.kubelet import Kubelet

Kubectl = Callable[..., Path]
PACKING: dict[str, Any] = {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}


@pytest.fixture(scope="module")
def told() -> Iterator[str]:
    """An extender that has seen one kubelet agree and one disagree, and calls about a pod and a pod of a group."""
    service = make_service(Settings(port=0, stale_after_seconds=A_DAY, gangs="on", question_workers=0))
    plain, odd = (
        Kubelet.of(sample(name, topologyManagerPolicy="best-effort")) for name in ("plain-with-a-long-name", "odd")
    )
    odd.machine = report_of(sample("odd", topologyManagerPolicy="best-effort", **PACKING))  # what it reports is not so
    with serving(service) as url, httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
        for kubelet in (plain, odd):
            pod = pod_of(20, name=f"p-{kubelet.name}")
            client.put(f"/v1/nodes/{kubelet.name}/report", json=kubelet.report()).raise_for_status()
            service.known.nodes.apply(PodSeen(kubelet.name, pod_from_json(pod), started=False), now=service.clock())
            kubelet.admit(pod)
            client.put(f"/v1/nodes/{kubelet.name}/report", json=kubelet.report()).raise_for_status()
        grouped = pod_of(14, name="rank-0")
        grouped["metadata"]["annotations"] = {GROUP: "ring", SIZE: "9"}
        for pod in (pod_of(2, name="waiting"), grouped):
            client.post("/scheduler/filter", json=args_of(pod, plain.name, "odd")).raise_for_status()
        yield url


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kubectl:
    """Puts a `kubectl` on the path that prints a document, or fails with a message. Returns the file of its words."""

    def install(document: object = None, fails: str = "") -> Path:
        bin_, words = tmp_path / "bin", tmp_path / "words"
        bin_.mkdir(exist_ok=True)
        program = bin_ / "kubectl"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nopen({str(words)!r}, 'w').write(' '.join(sys.argv[1:]))\n"
            f"print({json.dumps(document)!r})\nsys.exit({fails!r} or 0)\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(bin_))
        return words

    return install


def _pending(name: str, cpus: int = 2) -> dict[str, Any]:
    why = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
    return {**pod_of(cpus, name=name), "status": {"phase": "Pending", "conditions": [why]}}


def test_why_of_a_pending_pod_is_its_status_the_calls_and_the_answers_of_now(
    run: Run, told: str, kubectl: Kubectl
) -> None:
    words = kubectl(_pending("waiting"))

    printed = run("why", "waiting", "--server", told).stdout

    assert words.read_text() == "get pod -o json --namespace=default -- waiting"
    assert printed.startswith("default/waiting (uid-waiting)\nfilter, ")
    assert "Pending\nkube-scheduler: 0/2 nodes are available\nnow:\n" in printed
    assert re.search(r"^ odd +◐ split", printed, re.MULTILINE)
    assert run("explain", "waiting", "--server", told).stdout.count("0/2 nodes are available") == 1


def test_why_of_a_pod_that_ran_is_what_the_kubelet_said(run: Run, told: str, kubectl: Kubectl) -> None:
    failed = {**pod_of(name="new"), "status": {"phase": "Failed", "reason": "TopologyAffinityError", "message": "no"}}
    failed["spec"]["nodeName"] = "odd"
    kubectl(failed)

    printed = run("why", "team/new", "--server", told).stdout

    assert printed == "Failed on odd\nTopologyAffinityError: no\n"


def test_why_without_kubectl_says_so_and_takes_a_manifest(
    run: Run, told: str, kubectl: Kubectl, manifest: str, reports: list[str]
) -> None:
    kubectl(fails="error: You must be logged in to the server")

    known = run("why", "waiting", "--server", told).stdout
    unknown = run("why", "absent", "--server", told, code=1).output
    offline = run("why", "solver", *reports, "-f", manifest).stdout

    assert "kubectl says: error: You must be logged in to the server, so nothing is known of the pod's" in known
    sentence = "there is no recent call about 'absent'. Name its manifest with -f: kubectl says: error: You must be"
    assert sentence in unknown
    assert re.search(r"^now:\n.*^ node-b +✓ aligned", offline, re.MULTILINE | re.DOTALL)


def test_a_name_that_kubectl_could_take_for_an_option_is_none(run: Run, told: str, kubectl: Kubectl) -> None:
    words = kubectl(fails="error: not found")

    run("why", "--server", told, "--", "-A/--watch", code=1)

    assert words.read_text() == "get pod -o json --namespace=-A -- --watch"


def test_the_audit_counts_and_shows_both_placements(run: Run, told: str) -> None:
    printed = run("audit", "--server", told).stdout
    document = json.loads(run("audit", "--server", told, "-o", "json").stdout)

    assert re.search(r"^ 1\.36 +best-effort/container +exact +1 +1 +0 +0 +0 +0 *$", printed, re.MULTILINE)
    assert "2 predictions: 1 agreed, 1 wrong" in printed
    (wrong,) = document["recent"]
    assert f"predicted: {wrong['predicted']}" in printed
    assert f"kubelet: {wrong['reported']}" in printed
    assert wrong["predicted"] != wrong["reported"]
    assert "default/p-odd" in printed
    assert max(map(len, printed.splitlines())) <= 110


def test_decisions_are_listed_with_the_last_call_of_each_pod(run: Run, told: str) -> None:
    printed = run("decisions", "--server", told).stdout
    one = json.loads(run("decisions", "--pod", "wait", "--server", told, "-o", "json").stdout)["decisions"]

    assert re.search(r"^ default/waiting +filter, \d+ s ago: 2 of 2 nodes pass *$", printed, re.MULTILINE)
    assert [each["pod"]["name"] for each in one] == ["waiting"]
    assert run("decisions", "--limit", "1", "--server", told, "-o", "name").stdout == "pod/rank-0\n"


def test_groups_are_listed_with_what_they_wait_for(run: Run, told: str) -> None:
    printed = run("groups", "--server", told).stdout

    assert re.search(r"^ default/ring +waiting +9 +0 +0 +", printed, re.MULTILINE)
    assert run("groups", "--name", "no such group", "--server", told, "-o", "json").stdout == "[]\n"
    assert "No group is known." in run("groups", "--name", "no such group", "--server", told).stdout


@pytest.fixture
def many(tmp_path: Path) -> list[str]:
    """Report files of 24 empty nodes and 3 full ones."""
    options = []
    full = [Workload(name="w", copies=2, resources={"cpu": 14, "memory": "2Gi"})]
    for number in range(27):
        node = sample(f"node-{number:02}", workloads=full if number % 9 == 0 else [])
        file = tmp_path / f"{node.name}.json"
        file.write_text(json.dumps(report_of(node)))
        options += ["--report", str(file)]
    return options


def test_many_equal_answers_are_groups_and_all_are_rows(run: Run, manifest: str, many: list[str]) -> None:
    grouped = run("what-if", "-f", manifest, *many).stdout
    everything = run("what-if", "-f", manifest, *many, "--all").stdout

    assert "24 nodes:\n node-01" in re.sub(r" {2,}.*", "", grouped)
    assert re.search(r"^ node-01 +", grouped, re.MULTILINE)
    assert "node-04" not in grouped
    assert "3 nodes:" in grouped
    assert "of 27 nodes: 24 aligned, 3 refused" in grouped
    assert len(re.findall(r"^ node-\d\d +", everything, re.MULTILINE)) == 27
    assert run("what-if", "-f", manifest, *many, "--limit", "27").stdout == everything
    assert len(run("capacity", "-f", manifest, *many).stdout.splitlines()) < 20


def test_names_are_for_other_commands(run: Run, manifest: str, many: list[str]) -> None:
    fits = run("what-if", "-f", manifest, *many, "-o", "name").stdout.splitlines()

    assert (len(fits), fits[0]) == (24, "node/node-01")
    assert run("capacity", "-f", manifest, *many, "-o", "name").stdout.splitlines() == fits
    assert run("plan", "-f", manifest, *many, "-o", "name").stdout.splitlines() == [
        f"pod/solver-{number}" for number in range(3)
    ]
    assert len(run("nodes", *many, "-o", "name").stdout.splitlines()) == 27
    assert "this command lists no nodes or pods" in run("machines", *many, "-o", "name", code=2).output


@pytest.mark.parametrize("command", ["what-if", "capacity", "plan", "nodes"])
@pytest.mark.parametrize("name", ["ip-10-128-143-201.eu-central-1.compute.internal", "ip-10-128-143-201.ec2.internal"])
def test_in_80_columns_no_name_is_broken_and_nothing_is_lost(
    run: Run, manifest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report_of(sample(name))))
    assert console_for.__kwdefaults__ is not None
    monkeypatch.setitem(console_for.__kwdefaults__, "width", 80)
    files = [] if command == "nodes" else ["-f", manifest]

    printed = run(command, *files, "--report", str(file)).stdout

    assert name in printed
    if command == "nodes":
        assert re.search(r"v1.36.2 +single-numa-node +30/32 \(14 16\) +31Gi 31Gi", printed)
    elif len(name) == 30:
        assert max(map(len, printed.splitlines())) <= 80
