"""Groups of pods on the page: their states, one group in full, the way to and from its nodes, and questions."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.identity import EVERYTHING
from extender.wire.groups import GROUP, SIZE, Group
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.features.groups.gang_world import gangs_of
from tests.reports import pod_of, report_of, sample
from tests.waiting import A_DAY, until
from tests.web.cluster import HOSTILE

Json = dict[str, Any]
NODES = tuple(f"node-{letter}" for letter in "abcd")
MANY = 1000
SMALL = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: app, image: x, resources: {limits: {cpu: "32", memory: 4Gi}}}]}
"""


def _pods(server: FakeApiServer, group: str, count: int, size: int | None) -> list[Json]:
    """Pods of 14 CPUs; a node has room for two of them. *size* None: it is in an object that does not exist."""
    made = []
    for i in range(count):
        pod = pod_of(14, name=f"{group}-{i}")
        if size is None:
            pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": group}
        else:
            pod["metadata"]["annotations"] = {GROUP: group, SIZE: str(size)}
        made.append(server.pods.create(pod))
    return made


def _play(server: FakeApiServer, client: Client) -> None:
    """Let kube-scheduler bring a group in each state."""

    def bring(group: str, count: int, size: int | None) -> list[tuple[Json, str]]:
        pods = _pods(server, group, count, size)
        offered = [client.filter(pod, *NODES)["NodeNames"] for pod in pods]
        return [(pod, names[0] if names else "") for pod, names in zip(pods, offered, strict=True)]

    assert [client.bind(pod, node) for pod, node in bring("training", 2, 2)] == ["", ""]
    (first, node), *_ = bring("halfway", 3, 3)
    assert client.bind(first, node) == ""
    bring("gathering", 1, 2)
    bring("enormous", 1, 9)
    bring("nameless", 1, None)
    bring("crowd", 1, 4000)


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an extender with groups in all states."""
    settings: Json = {
        "gangs": "on",
        "gang_hold_seconds": A_DAY,
        "bind_wait_seconds": 0.0,
        "stale_after_seconds": A_DAY,
        "loopback_scopes": EVERYTHING,
        "question_workers": 0,
    }
    with cluster(tmp_path_factory.mktemp("groups"), *NODES, **settings) as (server, _service, client):
        for name in NODES:
            client.report(report_of(sample(name)))
        _play(server, client)
        until(lambda: len(client.call("GET", "/v1/groups")[1]["groups"]) == 6)
        yield client.url


@pytest.fixture(scope="module")
def many() -> Iterator[str]:
    """The URL of an extender with many groups that wait, one of them with a name that is markup."""
    service = make_service(Settings(port=0, gangs="on", loopback_scopes=EVERYTHING, question_workers=0))
    for name in (*(f"job-{i:04}" for i in range(MANY - 1)), HOSTILE):
        gangs_of(service).groups.join(Group(("annotation", "default", name), 8), "", 0, service.clock())
    with serving(service) as url:
        yield url


def test_groups_are_listed_by_state_and_lead_to_their_nodes_and_back(
    page: Page, groups: str, screenshots: Path
) -> None:
    page.goto(f"{groups}/#/groups")
    items = page.get_by_role("list", name="Groups of pods").get_by_role("listitem")
    expect(items).to_have_count(6)
    assert [each.split()[:2] for each in items.all_inner_texts()] == [
        ["default/halfway", "open"],
        ["default/gathering", "holding"],
        ["default/enormous", "waiting"],
        ["default/crowd", "single"],
        ["default/nameless", "single"],
        ["default/training", "placed"],
    ]
    expect(items.nth(0)).to_contain_text("3 pods: 1 bound, 2 with a place")
    expect(items.nth(1)).to_contain_text("1 pod still to come. Its places are held for 24 h more.")
    expect(items.nth(4)).to_contain_text("NUMA_EXTENDER_GANG_APIS does not have scheduling.x-k8s.io/v1alpha1")
    expect(page.locator("canvas:not([data-drawn])")).to_have_count(0)
    page.screenshot(path=screenshots / "groups-light.png", animations="disabled")

    page.get_by_role("link", name="default/halfway").click()
    expect(page.get_by_role("region", name="Group default/halfway")).to_be_focused()
    place = page.get_by_role("table", name="Places").get_by_role("row").nth(2)
    expect(place).to_contain_text("halfway-1")
    expect(place).to_contain_text("NUMA")
    name = place.get_by_role("link").inner_text()
    place.get_by_role("link").click()

    held = page.get_by_role("region", name="Room held for groups of pods")
    expect(held).to_contain_text("default/halfway: 1 place here.")
    expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    held.get_by_role("link", name="default/halfway").press("Enter")
    expect(page.get_by_role("region", name="Group default/halfway")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Groups", exact=True)).to_have_attribute("aria-current", "page")
    expect(items.nth(0).get_by_role("link", name="default/halfway")).to_be_focused()


@pytest.mark.parametrize(
    ("scheme", "width", "views"),
    [
        ("light", 360, {"groups": "default/nameless"}),
        ("dark", 1280, {"groups/annotation/default/halfway": "halfway-2", "nodes/node-d": "Room held for groups"}),
    ],
)
def test_every_view_can_be_read_by_everybody(
    page: Page, groups: str, scheme: Literal["light", "dark"], width: int, views: Mapping[str, str]
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    for path, text in views.items():
        page.goto(f"{groups}/#/{path}")
        expect(page.locator("#side")).to_contain_text(text)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        found = Axe().run(page)
        assert found.violations_count == 0, f"{path}\n{found.generate_report()}"


def test_many_groups_are_searched_and_shown_page_by_page(page: Page, many: str) -> None:
    page.goto(f"{many}/#/groups")
    status = page.locator("#side").get_by_role("status")
    items = page.get_by_role("list", name="Groups of pods").get_by_role("listitem")
    expect(status).to_have_text("1,000 groups")
    expect(items).to_have_count(50)
    expect(items.first).to_contain_text(HOSTILE)
    assert page.title() == "numa-extender"

    page.get_by_role("button", name="Next page").click()
    expect(items.first).to_contain_text("job-0049")
    page.get_by_role("button", name="Next page").press("Enter")
    expect(items.first).to_contain_text("job-0099")
    expect(page.get_by_role("button", name="Next page")).to_be_focused()
    page.get_by_role("button", name="First page").click()
    expect(items.first).to_contain_text(HOSTILE)
    page.get_by_label("Search groups by name").fill("job-09")
    expect(status).to_have_text("99 of 1,000 groups")
    page.get_by_label("Search groups by name").fill("no such")
    expect(page.get_by_text("No group matches.")).to_be_visible()
    page.get_by_label("Search groups by name").fill("<script>")
    items.get_by_role("link").click()
    expect(page.get_by_role("heading", name=f"default/{HOSTILE}")).to_be_visible()
    expect(page.get_by_text("8 pods, none with a place")).to_be_visible()
    assert page.locator("img:not([src^='/web/'])").count() == 0


def test_without_groups_it_says_what_to_do(page: Page, demo: str) -> None:
    page.goto(f"{demo}/#/groups")
    expect(page.get_by_role("region", name="Groups are off")).to_contain_text("Set NUMA_EXTENDER_GANGS=on")

    page.goto(f"{demo}/#/groups/annotation/default/missing")
    expect(page.get_by_role("alert")).to_contain_text("NUMA_EXTENDER_GANGS is off")


def test_questions_for_groups_are_asked_on_the_page(page: Page, demo: str) -> None:
    page.goto(demo)
    page.get_by_label("Pod or workload").fill(SMALL)
    page.keyboard.press("Control+Enter")
    page.get_by_label("Pods that must run together").fill("4")
    page.get_by_role("button", name="How many copies?").click()
    expect(page.locator(".capacity")).to_contain_text("of 4 pods")

    page.get_by_label("Pod or workload").fill(f"{SMALL}---\n{SMALL.replace('32', '800')}")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#headline")).to_contain_text("1 of 2 pods have a node")
    page.get_by_label("All or nothing").check()
    expect(page.locator("#headline")).to_have_text("No pod is placed: only 1 of 2 pods fit")
    expect(page.get_by_role("table", name="Where each pod would go")).to_contain_text("another pod does not")
    expect(page.get_by_label("All or nothing")).to_be_focused()
