"""Five thousand nodes: to load, to filter, to scroll. Times are printed; what is asserted is how much is drawn."""

import time

from playwright.sync_api import Page, expect

_TYPE = """
async (text) => {
  const field = document.getElementById("q");
  const began = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  document.getElementById("list").getBoundingClientRect();
  return performance.now() - began;
}
"""


def test_five_thousand_nodes_load_filter_and_scroll(page: Page, large: str) -> None:
    began = time.monotonic()
    page.goto(f"{large}/#/?show=tiles")
    expect(page.locator("#count")).to_have_text("5,000 nodes")
    expect(page.locator(".tile").first).to_be_visible()
    loaded = time.monotonic() - began

    typed = sorted(
        page.evaluate(_TYPE, text) for text in ("x", "xe", "xeon", "xeon-b", "xeon-b-0", "rack01 gpu", "none", "")
    )
    page.evaluate(_TYPE, "xeon-b")
    expect(page.locator("#count")).to_have_text("454 of 5,000 nodes")
    page.evaluate(_TYPE, "")
    page.get_by_role("combobox", name="Free CPUs").select_option("64")
    expect(page.locator("#count")).to_contain_text("of 5,000 nodes")
    page.get_by_role("button", name="Reset").click()
    page.locator("#list").evaluate("list => { list.scrollTop = list.scrollHeight; }")
    expect(page.locator("li[aria-posinset='5000']")).to_be_in_viewport()

    assert page.locator(".tile").count() < 100
    median, worst = typed[len(typed) // 2], typed[-1]
    print(f"5,000 nodes: loaded in {loaded:.2f} s, filtered in {median:.1f} ms (median), {worst:.1f} ms (worst)")
