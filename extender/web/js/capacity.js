// How many copies of the pod each node admits, and how many whole groups that makes. The service counts them on demand.
import { ApiError, askLines } from "./api.js";
import { fill, h } from "./dom.js";
import { nodeAddress } from "./state.js";
import { number, plural } from "./units.js";

const SHOWN = 8;

/** @param {string} manifest */
export function capacityCard(manifest) {
  const result = h("div", { role: "status" });
  const button = /** @type {HTMLButtonElement} */ (h("button", { type: "button", onclick: count }, "How many copies?"));
  const group = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: "1", max: "10000", placeholder: "1", autocomplete: "off" }));
  async function count() {
    button.disabled = true;
    const progress = h("p", { class: "hint" }, "Counting…");
    fill(result, progress);
    /** @type {any[]} */
    const nodes = [];
    try {
      const { summary } = await askLines("/v1/capacity", "pods", manifest, { group: group.value ? Number(group.value) : 1 }, (line) => {
        if (line.node) progress.textContent = `Counting… ${plural(nodes.push(line), "node")} so far`;
      });
      fill(result, ...counted({ summary, nodes }));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(result, h("p", { class: "error" }, error.message));
    } finally {
      button.disabled = false;
    }
  }
  return h("div", { class: "capacity" }, h("div", { class: "row" }, button, h("label", {}, "Pods that must run together ", group)), result);
}

/** Copies by alignment. @param {any} counts a CapacitySummary or a NodeCapacity */
function kinds(counts) {
  const words = /** @type {const} */ ([["aligned", "aligned"], ["split", "split over NUMA nodes"], ["not_managed", "not managed"]]);
  return words.filter(([key]) => counts[key]).map(([key, text]) => `${number(counts[key])} ${text}`).join(", ");
}

/** @param {any} reply a CapacityReply */
function counted({ summary, nodes }) {
  const best = nodes.filter((/** @type {any} */ node) => node.copies > 0)
    .sort((/** @type {any} */ a, /** @type {any} */ b) => b.copies - a.copies);
  const most = best[0]?.copies ?? 1;
  const [first] = summary.runs_out;
  return [
    h("p", {}, h("big", {}, number(summary.copies)), ` ${summary.copies === 1 ? "copy is" : "copies are"} admitted now, on ${plural(best.length, "node")}`,
      summary.bounded ? " (or more: the count was stopped)" : ""),
    summary.group > 1 ? h("p", {}, h("big", {}, number(summary.groups)), ` whole ${summary.groups === 1 ? "group" : "groups"} of ${plural(summary.group, "pod")}`) : null,
    h("p", {}, kinds(summary)),
    first ? h("p", { class: "hint" }, `Then, on most nodes: ${first.why}.`) : null,
    h("div", { class: "bars" }, best.slice(0, SHOWN).flatMap((/** @type {any} */ node) => [
      h("a", { href: nodeAddress(node.node), title: node.limited_by.detail }, node.node),
      h("progress", { max: most, value: node.copies, "aria-label": `Copies on ${node.node}`, title: kinds(node) }),
      h("span", {}, number(node.copies)),
    ])),
    best.length > SHOWN ? h("p", { class: "hint" }, `and ${plural(best.length - SHOWN, "more node")}`) : null,
  ];
}
