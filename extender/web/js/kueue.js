// The admission check of Kueue: the last answer to each Workload, and the places that are held for it.
import { call } from "./api.js";
import { h, tag } from "./dom.js";
import { redraw } from "./podgroups.js";
import { showFresh } from "./refreshing.js";
import { ago, number, plural } from "./units.js";

const SHOWN_NODES = 4;

/** Pill of each state. @type {Record<string, "yes" | "now" | "split" | "never">} */
const STATES = { Ready: "yes", Retry: "now", Pending: "split", Rejected: "never" };

const mode = h("p", { class: "hint", role: "status" }, "Loading…");
const list = h("div");
const pane = h("div", { class: "groups" },
  h("div", { class: "welcome" }, h("h2", {}, "Admission check of Kueue"),
    h("p", {}, "Workloads of Kueue that got quota, and whether all of their pods get places on NUMA nodes.")), mode, list);

/** @param {HTMLElement} side */
export function showKueue(side) {
  showFresh(side, pane, list, refresh);
}

async function refresh() {
  const { mode: setting, workloads } = await call("/v1/kueue");
  const status = `NUMA_EXTENDER_KUEUE is ${setting}: ${plural(workloads.length, "Workload")}.`;
  if (mode.textContent !== status) mode.textContent = status;
  redraw(list, workloads.length ? h("ol", { class: "group-list", "aria-label": "Workloads" }, workloads.map(item))
    : h("p", { class: "hint" }, "No Workload has been answered. Only the leader answers."));
}

/** @param {any} workload an AnsweredWorkload */
function item({ namespace, name, state, message, retry_seconds: retry, at, written, nodes, held_seconds: held }) {
  const names = Object.entries(nodes).map(([node, count]) => `${node} (${count})`);
  const more = names.length - SHOWN_NODES;
  return h("li", {},
    h("div", { class: "row" }, h("span", { class: "name" }, `${namespace}/${name}`), tag(state, STATES[state] ?? "split", ""),
      written ? null : h("span", { class: "hint" }, "not written")),
    h("p", {}, message),
    names.length ? h("p", {}, `Places: ${names.slice(0, SHOWN_NODES).join(", ")}${more > 0 ? ` and ${number(more)} more nodes` : ""}`) : null,
    h("p", { class: "hint" }, `Answered ${ago(Date.now() / 1000 - at)}.`, retry === null ? "" : ` Kueue tries again after ${number(retry)} s.`,
      held === null ? "" : ` Places are held for ${number(Math.round(held))} s more.`));
}
