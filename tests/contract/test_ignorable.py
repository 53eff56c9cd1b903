"""What becomes of pods while the extender works, refuses at bind, or is down: by how kube-scheduler is set up.

The real extender over HTTP, the rule of the real scheduler, the configurations of our recipes. docs/operating.md has
the outcomes as a table, which is what is compared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.api.service import Service
from extender.scheduling.node_totals import ALIGNED
from tests.contract.kube_scheduler import CHECKED, FILTERED, UNCHECKED, WAITS, KubeScheduler
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.manifests.rendering import MANIFESTS
from tests.ports import reserve_port
from tests.reports import pod_of, report_of, sample
from tests.waiting import until

Json = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs" / "operating.md"
PODS = ("plain", "aligned", "marked")
KINDS = {
    "all": PODS,
    "plain": ("plain",),
    "aligned": ("aligned", "marked"),
    "aligned, not marked": ("aligned",),
    "marked": ("marked",),
}
"""Which pods a row of the table is about."""


def recipe(name: str) -> Json:
    """Its configuration of kube-scheduler."""
    loaded: Json = yaml.safe_load((MANIFESTS / "overlays" / name / "scheduler-config.yaml").read_text())
    return loaded


def _ignorable(**without: object) -> Json:
    (entry,) = recipe("second-scheduler")["extenders"]
    return {"extenders": [{k: v for k, v in entry.items() if k not in without} | {"ignorable": True}]}


ARRANGEMENTS = {
    "one entry, `ignorable: false`": recipe("second-scheduler"),
    "two entries": recipe("control-plane"),
    "one entry, `ignorable: true`, no `bindVerb`": _ignorable(bindVerb=None),
    "one entry, `ignorable: true`, with `bindVerb`": _ignorable(),
}


def new_pod(server: FakeApiServer, kind: str, name: str) -> Json:
    """*kind*: asks for nothing that is aligned; for 14 CPUs; the same, and says that it wants them aligned."""
    pod = pod_of(14, name=name)
    resources = pod["spec"]["containers"][0]["resources"]
    if kind == "plain":
        resources.clear()
        resources["requests"] = {"cpu": "100m"}
        pod["status"] = {**pod.get("status", {}), "qosClass": "Burstable"}
    elif kind == "marked":
        for amounts in resources.values():
            amounts[ALIGNED] = "1"
    return server.pods.create(pod)


@contextmanager
def live(directory: Path) -> Iterator[tuple[FakeApiServer, Service, Client, str]]:
    """One node with room for one pod of 14 CPUs on each of its NUMA nodes, one of which is taken."""
    with cluster(directory, "node-a") as (server, service, client):
        server.pods.create(_on("node-a", pod_of(14, name="first")))
        until(lambda: service.known.pods.get("uid-first").bound_to == "node-a")
        client.report(report_of(sample("node-a")))
        yield server, service, client, f"http://{client._address}"


def _on(node: str, pod: Json) -> Json:
    pod["spec"]["nodeName"] = node
    return pod


def outcomes(directory: Path, configuration: Json) -> dict[tuple[str, str], str]:
    """By state of the extender and kind of pod."""
    found = {}
    for kind in PODS:
        for state in ("works", "refuses at bind", "is down"):
            here = directory / f"{kind}-{state}"
            here.mkdir()
            with live(here) as (server, service, _, url):
                base = url if state != "is down" else f"http://127.0.0.1:{reserve_port()}"
                scheduler = KubeScheduler(configuration, base, server)

                def take_the_room(server: FakeApiServer = server, service: Service = service) -> None:
                    server.pods.create(_on("node-a", pod_of(14, name="rival")))
                    until(lambda: service.known.pods.get("uid-rival").bound_to == "node-a")

                before_bind = take_the_room if state == "refuses at bind" else lambda: None
                found[state, kind] = scheduler.schedule(new_pod(server, kind, "pod"), ["node-a"], before_bind)
    return found


def documented() -> dict[str, dict[tuple[str, str], str]]:
    """The table under the heading `When the extender is down`."""
    text = DOCS.read_text().partition("## When the extender is down")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    states = {"works": 2, "refuses at bind": 3, "is down": 4}
    found: dict[str, dict[tuple[str, str], str]] = {}
    for row in rows[1:]:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        for kind in KINDS[cells[1].partition(":")[0]]:
            for state, column in states.items():
                found.setdefault(cells[0], {})[state, kind] = cells[column]
    return found


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_the_table_of_the_docs_is_what_kube_scheduler_does(tmp_path: Path, arrangement: str) -> None:
    assert outcomes(tmp_path, ARRANGEMENTS[arrangement]) == documented()[arrangement]


def test_the_recipes_keep_the_promise() -> None:
    """A pod that must be aligned is never bound without the last look, and plain pods wait for nobody for long."""
    table = documented()
    for name in ("second-scheduler", "standalone", "control-plane"):
        arrangement = "two entries" if len(recipe(name)["extenders"]) == 2 else "one entry, `ignorable: false`"
        assert all(table[arrangement][state, "marked"] in (CHECKED, WAITS) for state, _ in table[arrangement])
    assert table["two entries"]["is down", "plain"] == UNCHECKED
    assert table["two entries"]["works", "plain"] == FILTERED


def test_an_ignorable_binder_was_the_fault() -> None:
    """Its refusals are skipped: the scheduler binds the pod that bind has just refused."""
    table = documented()["one entry, `ignorable: true`, with `bindVerb`"]

    assert table["refuses at bind", "marked"] == FILTERED
