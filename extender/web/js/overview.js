// The right pane if no node is chosen: room for aligned pods, problems, decisions.
import { certaintyOf, mostFree } from "./cluster.js";
import { decisionList } from "./decisions.js";
import { fill, h, icon } from "./dom.js";
import { addressOf, nodeAddress, on, setFilters, state } from "./state.js";
import { number, plural } from "./units.js";

const SIZES = [1, 2, 4, 8, 16, 32, 64, 128];
const SHOWN_PROBLEMS = 5;

const room = h("section", { class: "card", "aria-labelledby": "room-title" });
const doubts = h("section", { class: "card now", "aria-labelledby": "doubts-title" });

/** @param {HTMLElement} pane */
export function showOverview(pane) {
  const isDecisions = state.route.view === "decisions";
  fill(pane,
    h("div", { class: "welcome" }, h("h2", {}, isDecisions ? "Decisions" : "Overview"),
      h("p", {}, isDecisions ? "What the extender answered when kube-scheduler asked which nodes a pod fits on."
        : "Paste a pod to see where it would be placed, or why it fits nowhere. Choose a node to see who holds its CPUs, memory and devices.")),
    isDecisions ? [decisionList(), room, doubts] : [room, doubts, decisionList()]);
}

on("nodes", () => {
  const { nodes } = state;
  const fitting = SIZES.map((size) => nodes.filter((node) => mostFree(node) >= size).length);
  const most = Math.max(1, ...fitting);
  fill(room, h("h3", { id: "room-title" }, "Room for aligned pods"),
    h("p", { class: "hint" }, "Nodes with that many exclusive CPUs free on one NUMA node."),
    h("div", { class: "bars" }, SIZES.flatMap((size, i) => fitting[i] === 0 && i > 0 && fitting[i - 1] === 0 ? [] : [
      h("button", { type: "button", class: "quiet", "aria-label": `Show nodes with ${plural(size, "CPU")} or more free on one NUMA node`,
        onclick: () => show(size) }, plural(size, "CPU")),
      h("progress", { max: most, value: fitting[i], "aria-label": `Nodes with ${plural(size, "CPU")} free` }),
      h("span", {}, number(fitting[i])),
    ])));
  const doubtful = nodes.filter((node) => certaintyOf(node) !== "exact" || node.problems > 0);
  doubts.hidden = doubtful.length === 0;
  fill(doubts, h("h3", { id: "doubts-title" }, icon("warning"), `${plural(doubtful.length, "node")} not in order`),
    h("ul", { class: "problems" }, doubtful.slice(0, SHOWN_PROBLEMS).map((node) => h("li", {},
      h("a", { href: nodeAddress(node.name) }, node.name), ` ${certaintyOf(node)}${node.problems ? `, ${plural(node.problems, "problem")}` : ""}`))),
    doubtful.length > SHOWN_PROBLEMS ? h("button", { type: "button", onclick: () => setFilters({ state: "problems" }) }, "Show those with problems") : null);
});

/** @param {number} size */
function show(size) {
  setFilters({ free: String(size) });
  if (state.route.view !== "nodes") location.hash = addressOf("");
}
