"""From "my pod is Pending" to "it fits after this change", with the screenshots that the documentation shows."""

import json
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.run import PODS
from extender.demo.serving import serving
from extender.demo.story import ask as tell
from extender.identity import EVERYTHING
from extender.samples.nodes import Workload, make_pod, sample_cluster
from tests.reports import pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS
from tests.web.cluster import report

PENDING = """apiVersion: v1
kind: Pod
metadata:
  name: finetune
spec:
  containers:
    - name: app
      image: registry.example/app:1
      resources:
        limits:
          cpu: "120"
          memory: 200Gi
          vendor.example/gpu: "4"
"""


SMALL = """apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: app, image: x, resources: {limits: {cpu: "8", memory: 4Gi}}}]}
"""
REPLICATED = """apiVersion: apps/v1
kind: Deployment
metadata: {name: b}
spec:
  replicas: 3
  template: {spec: {containers: [{name: app, image: x, resources: {limits: {cpu: "40", memory: 4Gi}}}]}}
"""


def test_from_pending_to_a_change_that_fits(page: Page, demo: str, screenshots: Path) -> None:
    _schedule(demo)
    page.goto(demo)
    expect(page.locator("#count")).to_have_text("11 nodes")
    expect(page.get_by_text("demo/solver")).to_be_visible()
    _shoot(page, screenshots / "overview-light.png")

    # The pod that is Pending fits nowhere, and the page says why, counted.
    _ask(page, PENDING)
    expect(page.locator("#headline")).to_have_text("Admitted on no node")
    expect(_reason(page, "NUMA alignment can never be possible")).to_be_visible()
    _reason(page, "kube-scheduler: the totals are too small").click()
    expect(page.locator("#count")).to_have_text("1 of 11 nodes")
    _reason(page, "kube-scheduler: the totals are too small").click()

    # One node tells the story, and what would fit there.
    page.get_by_label("Search nodes by name").fill("gpu-a")
    page.locator(".tile", has_text="gpu-a").click()
    page.get_by_label("Search nodes by name").fill("")
    card = page.get_by_role("region", name="What this node answers to the pod")
    expect(card).to_contain_text("The pod can never fit here")
    expect(card).to_contain_text("Container app wants 120 CPUs, more than any one NUMA node of this machine has.")
    expect(card).to_contain_text("TopologyAffinityError")
    page.get_by_text("How the kubelet decides").click()
    expect(page.get_by_role("table", name="Hints of each manager")).to_contain_text("120 CPUs")
    _shoot(page, screenshots / "refused-light.png")

    # A change of the node: a copy of it under another policy takes the pod, over both NUMA nodes.
    page.get_by_text("Try the node with other settings").click()
    page.get_by_label("Topology policy").select_option("best-effort")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(card).to_contain_text("On a copy of gpu-a with best-effort / container:")
    expect(page.locator(".numa.placed")).to_have_count(2)

    # A change of the pod: what the page proposes does fit, and is placed where the page said.
    card.get_by_role("listitem").filter(has_text="112 CPUs instead of 120").get_by_role("button").click()
    expect(page.locator(".numa.placed")).to_have_count(1)
    changed = page.locator(".changed")
    expect(changed.locator("del")).to_have_text('cpu: "120"')
    expect(changed.locator("ins")).to_have_text('cpu: "112"')
    promised = page.locator(".cpu.placed-here").all_inner_texts()
    changed.get_by_role("button", name="Ask about it").click()
    expect(page.locator("#headline")).to_have_text("Aligned on 1 of 11 nodes")
    expect(card).to_contain_text("The pod would be aligned here")
    assert page.locator(".cpu.placed-here").all_inner_texts() == promised
    assert len(promised) == 112
    assert page.get_by_label("Pod or workload").input_value() == PENDING.replace("120", "112")
    for title in ("How the kubelet decides", "Try the node with other settings"):
        page.get_by_text(title).click()
    page.locator("#side").evaluate("side => { side.scrollTop = 0; }")
    _shoot(page, screenshots / "fits-light.png")
    page.emulate_media(color_scheme="dark")
    _shoot(page, screenshots / "fits-dark.png")

    # How many of them?
    page.get_by_role("button", name="How many copies?").click()
    expect(page.locator(".capacity")).to_contain_text("1 copy is admitted now, on 1 node")

    # It is still there after a reload, and gone when it is cleared.
    page.reload()
    expect(page.locator("#headline")).to_have_text("Aligned on 1 of 11 nodes")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#headline")).to_be_empty()
    expect(card).to_have_count(0)


def test_a_click_counts_while_the_nodes_are_drawn_again(page: Page, demo: str) -> None:
    page.goto(demo)
    tile = page.locator(".tile", has_text="gpu-a")
    tile.locator(".tile-name").hover()
    page.mouse.down()
    page.evaluate("document.dispatchEvent(new Event('themechange'))")  # draws all tiles again
    page.mouse.up()
    expect(page.get_by_role("heading", name="gpu-a")).to_be_visible()


def test_a_filter_keeps_the_node_that_was_just_opened(page: Page, demo: str) -> None:
    """A click changes the address at once, and the page hears of it later."""
    page.goto(demo)
    expect(page.locator("#count")).to_have_text("11 nodes")
    page.evaluate("""() => {
        location.hash = "#/nodes/gpu-a";
        document.getElementById("q").dispatchEvent(new Event("input"));
    }""")
    expect(page.get_by_role("heading", name="gpu-a")).to_be_visible()


def test_a_node_in_detail(page: Page, demo: str, screenshots: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{demo}/#/nodes/epyc-nps4-b")

    expect(page.locator(".numa")).to_have_count(8)
    expect(page.locator(".cpu")).to_have_count(256)
    expect(page.locator(".cpu.held")).to_have_count(160)
    expect(page.get_by_role("table", name="Who holds what").get_by_role("row")).to_have_count(17)
    expect(page.get_by_role("table", name="Largest request").get_by_role("row")).to_have_count(9)
    expect(page.get_by_role("table", name="Distances between NUMA nodes").get_by_role("row")).to_have_count(9)
    expect(page.locator("#side")).to_contain_text("Policy restricted: the kubelet rejects a pod")
    expect(page.locator("#side")).to_contain_text("Scope container: each container of a pod is placed by itself.")
    _shoot(page, screenshots / "node-dark.png")


def test_cores_stand_together_with_their_cache(page: Page) -> None:
    """A machine with two L3 caches of four cores on each NUMA node."""
    document = report_of(sample("cached"))
    for cpu in document["machine"]["cpus"]:
        cpu[4] = cpu[0] % 16 // 4
    with serving(make_service(Settings(port=0, stale_after_seconds=86_400.0, loopback_scopes=EVERYTHING))) as url:
        report(url, document)
        page.goto(f"{url}/#/nodes/cached")

        expect(page.locator(".caches").first).to_have_text("2 L3 caches, 8 CPUs each")
        expect(page.locator(".cache")).to_have_count(4)
        expect(page.locator(".cache").first.locator(".cpu")).to_have_count(8)


@pytest.mark.parametrize("workload", PODS, ids=lambda each: each.name)
def test_the_page_begins_with_a_node_as_good_as_that_of_the_story(page: Page, demo: str, workload: Workload) -> None:
    pod = make_pod(workload.name, workload.name, workload)
    with httpx.Client(base_url=demo, trust_env=False, timeout=30) as client:
        story = tell(client, sample_cluster(), pod)
        answers = client.post("/v1/what-if", json={"pod": pod}).raise_for_status().json()["nodes"]
    assert story.choice is not None
    page.goto(demo)

    _ask(page, json.dumps(pod))

    expect(page.locator("#headline")).to_contain_text("Aligned on")
    shown = [name.strip() for name in page.locator("li[aria-posinset] .tile-name").all_inner_texts()]
    # the demo has no taints, which keep nodes with devices for pods that request them in the story
    offered = {row.node.name for row in story.rows}
    scores = {each["node"]: each["score"] for each in answers}
    assert scores[next(name for name in shown if name in offered)] == scores[story.choice.node.name]


def test_refused_nodes_of_a_decision_are_named(page: Page, demo: str) -> None:
    _schedule(demo)
    page.goto(f"{demo}/#/decisions")
    decision = page.locator(".decisions > li").filter(has_text="demo/solver").first
    decision.get_by_text("nodes refused").click()
    decision.get_by_role("button", name="xeon-b").click()

    expect(decision.get_by_role("status").filter(has_text="xeon-b")).to_contain_text("Topology locality")
    decision.get_by_role("link", name="xeon-b").click()
    expect(page.get_by_role("region", name="Node xeon-b")).to_be_visible()


def test_several_documents_are_a_plan(page: Page, demo: str) -> None:
    page.goto(demo)
    _ask(page, f"{SMALL}---\n{REPLICATED}---\nkind: Service\napiVersion: v1\nmetadata: {{name: web}}\n")

    expect(page.locator("#headline")).to_have_text("All 4 pods have a node, aligned")
    rows = page.get_by_role("table", name="Where each pod would go").get_by_role("row")
    expect(rows).to_have_count(5)
    node = rows.filter(has_text="b-1").get_by_role("link").inner_text()
    tile = page.locator(".tile").filter(has_text="pod").filter(has_text=node)
    expect(tile).to_have_count(1)
    rows.filter(has_text="b-1").get_by_role("link").click()
    expect(page.locator("#side .cpu.placed-here").first).to_be_visible()

    _ask(page, f"{SMALL}---\n{REPLICATED.replace('40', '400')}")
    expect(page.locator("#headline")).to_have_text("1 of 4 pods have a node, aligned")
    expect(rows.nth(1)).to_contain_text("no node")
    _ask(page, f"{SMALL}---\n{REPLICATED.replace('40', 'apples')}")
    expect(page.locator("#ask-error")).to_contain_text("apples")

    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#headline")).to_be_empty()


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(PENDING, PENDING.replace('"120"', '"112"'), id="block"),
        pytest.param("spec: {containers: [{name: app}]}", None, id="no-resources"),
        pytest.param(
            "spec:\n  containers:\n  - name: other\n    resources: {limits: {cpu: 120}}\n"
            "  - resources: {limits: {cpu: 120, memory: 1Gi}, requests: {cpu: 120}}\n    name: app\n",
            "spec:\n  containers:\n  - name: other\n    resources: {limits: {cpu: 120}}\n"
            '  - resources: {limits: {cpu: "112", memory: 1Gi}, requests: {cpu: "112"}}\n    name: app\n',
            id="flow",
        ),
        pytest.param(
            '{"spec":{"containers":[{"name":"app","resources":{"limits":{"cpu":120}}}]}}',
            '{\n  "spec": {\n    "containers": [\n      {\n        "name": "app",\n        "resources": {\n'
            '          "limits": {\n            "cpu": "112"\n          }\n        }\n      }\n    ]\n  }\n}',
            id="json",
        ),
    ],
)
def test_a_manifest_is_changed_in_its_own_words(page: Page, demo: str, manifest: str, expected: str | None) -> None:
    page.goto(demo)

    changed = page.evaluate(
        """async (manifest) => (await import("/web/js/manifest.js"))
        .withChanges(manifest, "app", [{ resource: "cpu", amount: "112" }])""",
        manifest,
    )

    assert changed == expected


def test_what_cannot_be_read_is_named_where_it_is(page: Page, demo: str) -> None:
    page.goto(demo)
    error = page.locator("#ask-error")

    _ask(page, PENDING.replace('"120"', "12 apples"))
    expect(error).to_contain_text("spec.containers[0].resources.limits.cpu")
    expect(page.get_by_label("Pod or workload")).to_be_focused()
    _ask(page, PENDING.replace("spec:", "spec: ["))
    expect(error).to_contain_text("line ")
    _ask(page, "  ")
    expect(error).to_have_text("Paste a pod first.")
    _ask(page, PENDING)

    expect(error).to_be_empty()
    expect(page.locator("#headline")).to_have_text("Admitted on no node")


def test_json_and_yaml_are_the_same_question(page: Page, demo: str) -> None:
    page.goto(demo)
    page.get_by_label("Fill in an example").select_option(label="16 exclusive CPUs")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#headline")).to_contain_text("Aligned on")
    by_yaml = page.locator("#answer .reasons").inner_text()

    page.get_by_role("button", name="Clear").click()
    _ask(page, httpx.Response(200, json=pod_of(16, "48Gi", name="solver")).text)

    expect(page.locator("#headline")).to_contain_text("Aligned on")
    assert page.locator("#answer .reasons").inner_text() == by_yaml


def _ask(page: Page, manifest: str) -> None:
    page.get_by_label("Pod or workload").fill(manifest)
    page.get_by_role("button", name="Where would it run?").click()


def _reason(page: Page, text: str) -> Locator:
    return page.locator(".reasons").get_by_role("button").filter(has_text=text)


def _schedule(url: str) -> None:
    """Let kube-scheduler ask about a pod, so that there is a decision to show."""
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        names = [node["name"] for node in client.get("/v1/nodes").json()["nodes"]]
        pod = pod_of(16, "48Gi", name="solver")
        pod["metadata"]["namespace"] = "demo"
        args = {"Pod": pod, "Nodes": None, "NodeNames": names}
        passed = client.post("/scheduler/filter", json=args).json()["NodeNames"]
        client.post("/scheduler/prioritize", json={**args, "NodeNames": passed}).raise_for_status()


def _shoot(page: Page, path: Path) -> None:
    expect(page.locator("canvas:not([data-drawn])")).to_have_count(0)
    page.mouse.move(0, 0)
    page.screenshot(path=path, animations="disabled")


def test_a_node_that_would_split_a_demanding_pod_does_not_fit_and_says_why(page: Page, demo: str) -> None:
    """Its kubelet has policy best-effort, and would admit the pod on two NUMA nodes."""
    demanding = "metadata: {name: a, annotations: {numa-extender.io/alignment: single-numa-node}}"
    page.goto(demo)
    _ask(page, SMALL.replace("metadata: {name: a}", demanding).replace('"8"', '"24"'))

    expect(page.get_by_text("the pod demands alignment single-numa-node for each container").first).to_be_visible()
    page.locator(".tile", has_text="quad-a").click()
    card = page.get_by_role("region", name="What this node answers to the pod")
    expect(card).to_contain_text("The pod does not fit now")
    expect(card).to_contain_text("The pod demands one NUMA node, and container app would be split on NUMA")


def test_decisions_are_searched_by_pod_and_nodes_by_the_values_of_their_labels(page: Page, demo: str) -> None:
    _schedule(demo)
    page.goto(f"{demo}/#/decisions")
    pods = page.locator(".decisions > li > strong")
    expect(pods.filter(has_text="demo/solver").first).to_be_visible()
    page.get_by_label("Search pods by name").fill("no such pod")
    expect(page.get_by_text("No recent call is about a pod with no such pod")).to_be_visible()
    page.get_by_label("Search pods by name").fill("olve")
    expect(pods.first).to_be_visible()
    assert set(pods.all_inner_texts()) == {"demo/solver"}

    found = page.evaluate("""async () => {
      const { select, NO_CHOICES } = await import("/web/js/cluster.js");
      const node = { name: "n1", pool: "Training", instance_type: "c7.metal", numa: [] };
      const chosen = (q) => select([node], { ...NO_CHOICES, q }, new Map(), () => "", new Set()).length;
      return ["n1", "train c7", "METAL", "n2", "train n2"].map(chosen);
    }""")
    assert found == [1, 1, 1, 0, 0]
