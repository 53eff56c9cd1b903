"""From "my pod is Pending" to "it fits after this change", with the screenshots that the documentation shows."""

from pathlib import Path

import httpx
from playwright.sync_api import Locator, Page, expect

from tests.reports import pod_of

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
    page.locator(".tile", has_text="gpu-a").click()
    card = page.get_by_role("region", name="What this node answers to the pod")
    expect(card).to_contain_text("The pod can never fit here")
    expect(card).to_contain_text("Container app wants 120 CPUs, more than any one NUMA node of this machine has.")
    expect(card).to_contain_text("TopologyAffinityError")
    page.get_by_text("How the kubelet decides").click()
    expect(page.get_by_role("table", name="What each manager offers")).to_contain_text("120 CPUs")
    _shoot(page, screenshots / "refused-light.png")

    # A change of the node: a copy of it under another policy takes the pod, over both NUMA nodes.
    page.get_by_text("Try the node with other settings").click()
    page.get_by_label("Topology policy").select_option("best-effort")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(card).to_contain_text("On a copy of gpu-a with best-effort / container:")
    expect(page.locator(".numa.lands")).to_have_count(2)

    # A change of the pod: what the page proposes does fit, and lands where the page said.
    card.get_by_role("listitem").filter(has_text="112 CPUs instead of 120").get_by_role("button").click()
    expect(page.locator(".numa.lands")).to_have_count(1)
    promised = page.locator(".cpu.lands-here").all_inner_texts()
    _ask(page, PENDING.replace("120", "112"))
    expect(page.locator("#headline")).to_have_text("Aligned on 1 of 11 nodes")
    expect(card).to_contain_text("The pod would be aligned here")
    assert page.locator(".cpu.lands-here").all_inner_texts() == promised
    assert len(promised) == 112
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


def test_a_node_in_detail(page: Page, demo: str, screenshots: Path) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{demo}/#/nodes/epyc-nps4-b")

    expect(page.locator(".numa")).to_have_count(8)
    expect(page.locator(".cpu")).to_have_count(256)
    expect(page.locator(".cpu.held")).to_have_count(160)
    expect(page.get_by_role("table", name="Who holds what").get_by_role("row")).to_have_count(17)
    expect(page.get_by_role("table", name="Largest request").get_by_role("row")).to_have_count(9)
    _shoot(page, screenshots / "node-dark.png")


def test_what_cannot_be_read_is_named_where_it_is(page: Page, demo: str) -> None:
    page.goto(demo)
    error = page.locator("#ask-error")

    _ask(page, PENDING.replace('"120"', "12 apples"))
    expect(error).to_contain_text("spec.containers[0].resources.limits.cpu")
    expect(page.get_by_label("Pod or workload")).to_be_focused()
    _ask(page, PENDING.replace("spec:", "spec: ["))
    expect(error).to_contain_text("line ")
    _ask(page, f"{PENDING}---\n{PENDING}")
    expect(error).to_have_text("Paste one document: there are 2.")
    _ask(page, "  ")
    expect(error).to_have_text("Paste a pod first.")
    _ask(page, PENDING)

    expect(error).to_be_empty()
    expect(page.locator("#headline")).to_have_text("Admitted on no node")


def test_json_and_yaml_are_the_same_question(page: Page, demo: str) -> None:
    page.goto(demo)
    page.get_by_label("Fill in an example").select_option(label="16 CPUs for itself")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#headline")).to_contain_text("Aligned on")
    by_yaml = page.locator("#answer .reasons").inner_text()

    page.get_by_role("button", name="Clear").click()
    _ask(page, httpx.Response(200, json=pod_of(16, "48Gi", name="solver")).text)

    expect(page.locator("#headline")).to_contain_text("Aligned on")
    assert page.locator("#answer .reasons").inner_text() == by_yaml


def _ask(page: Page, manifest: str) -> None:
    page.get_by_label("Pod or workload").fill(manifest)
    page.get_by_role("button", name="Where would it land?").click()


def _reason(page: Page, text: str) -> Locator:
    return page.locator(".reasons").get_by_role("button").filter(has_text=text)


def _schedule(url: str) -> None:
    """Let kube-scheduler ask about a pod, so that there is a decision to show."""
    with httpx.Client(base_url=url, trust_env=False) as client:
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
