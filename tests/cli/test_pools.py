"""What people see in a terminal of nodes with the NRI policy. Reports are given as files, so no server runs."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from extender.__main__ import main
from tests.nri_samples import EIGHT, nri_report, placed_pod

PODS = [
    placed_pod("web-0", "4", "6Gi"), placed_pod("db", "6500m", "10Gi"), placed_pod("lake", "2", "20Gi", limit=False),
]  # fmt: skip


@pytest.fixture
def reports(tmp_path: Path) -> list[str]:
    options = []
    for document in (
        nri_report("pools-a", PODS),
        nri_report("pools-b", PODS, hardware=EIGHT, caches_per_numa=2, cxl_gib=64),
        nri_report("pools-d", PODS, grants=None),
    ):
        file = tmp_path / f"{document['node_name']}.json"
        file.write_text(json.dumps(document))
        options += ["--report", str(file)]
    return options


IN_THE_DOCS = [
    placed_pod("web-0", "4", "6Gi"), placed_pod("web-1", "3", "6Gi"), placed_pod("db", "6500m", "10Gi"),
    placed_pod("batch", "500m", "1Gi", limit=False), placed_pod("cache", "2", "20Gi", limit=False),
    placed_pod("logs", "300m", "1Gi", containers=2),
]  # fmt: skip


def test_the_page_for_operators_shows_what_is_printed(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(nri_report("pools-a", IN_THE_DOCS)))
    page = (Path(__file__).parents[2] / "docs/nri-topology-aware.md").read_text()
    options = ["--report", str(file)]
    explained = run("what-if", options, "--explain", pod="3")

    assert run("map", options, "pools-a").rstrip() in page
    assert explained[explained.index("pools-a\n  app:") :].rstrip() in page


def run(command: str, reports: list[str], *arguments: str, pod: str = "") -> str:
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **placed_pod("new", pod, "2Gi")}) if pod else None
    given = [command, *arguments, *(["-f", "-"] if pod else []), *reports]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, given, input=text)
    assert result.exit_code == 0, result.output
    return result.output


def line(output: str, start: str) -> str:
    return " ".join(next(each for each in output.splitlines() if each.strip().startswith(start)).split())


def test_nodes_show_what_the_pools_have_left(reports: list[str]) -> None:
    output = run("nodes", reports)

    assert line(output, "pools-a") == "pools-a v1.36.2 NRI topology-aware 17.5/30 (7 12) 22Gi 26Gi"
    assert line(output, "pools-d").startswith("pools-d v1.36.2 NRI topology-aware ?")
    assert line(output, "(unknown)") == "(unknown)"


def test_the_map_is_the_tree_of_pools_with_their_containers(reports: list[str]) -> None:
    output = run("map", reports, "pools-a")
    tiered = run("map", reports, "pools-b")
    unknown = run("map", reports, "pools-d")

    assert line(output, "root") == (
        "root 17.5 CPUs left of 30 shared (4 exclusive, 8.5 in use as shares, 2 more reserved)"
    )
    assert "  team/lake app: 2 CPUs shared, 20Gi on NUMA 0-1" in output
    assert "    team/web-0 app: CPUs 8-9,24-25, 6Gi on NUMA 1" in output
    assert "(384Gi DRAM + 64Gi PMEM)" in tiered
    assert "NUMA node #7/L3 cache #15" in tiered
    assert "its pools are not known" in unknown
    assert "nri.grants: not known" in unknown


def test_what_if_explains_every_pool(reports: list[str]) -> None:
    output = run("what-if", reports, "--explain", "--node", "pools-a", pod="3")
    refused = run("what-if", reports, "--explain", "--node", "pools-a", pod="20")
    unknown = run("what-if", reports, "--node", "pools-d", pod="3")

    assert "app: socket #1; CPUs 10-11,26; 2Gi on NUMA 1" in output
    assert line(output, "socket #1 ") == "socket #1 9 CPUs left memory on NUMA 1 used"
    assert line(output, "root ") == "root 14.5 CPUs left memory on NUMA 0-1 memory of more NUMA nodes"
    assert line(output, "socket #0 ") == "socket #0 4.5 CPUs left memory on NUMA 0 less CPU left"
    assert "first, and refused" in refused
    assert "refused: " in refused
    assert "? unknown" in unknown
    assert "Whether the NRI policy of the node then creates" in unknown


def test_capacity_and_plan_do_not_count_on_the_kubelet_alone(reports: list[str]) -> None:
    """Seen red: where the policy decides, every copy was taken for the first one, so that ten had a place."""
    capacity = run("capacity", reports, pod="3")
    plan = run("plan", reports, "--node", "pools-a", pod="3")
    open_plan = run("plan", reports, "--node", "pools-d", pod="3")

    assert line(capacity, "pools-a").startswith("pools-a 5 ")
    assert line(capacity, "pools-d") == "pools-d 0 0 not enough is known about the node"
    assert "app: socket #1; CPUs 10-11,26; 2Gi on NUMA 1" in plan
    assert "? unknown" in line(open_plan, "new-0")
