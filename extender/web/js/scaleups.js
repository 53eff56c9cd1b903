// Requests for nodes to autoscalers: for which pods, how many, in which pools, and what became of them.
import { code } from "./adviceanswers.js";
import { call } from "./api.js";
import { h, tag } from "./dom.js";
import { redraw } from "./podgroups.js";
import { showFresh } from "./refreshing.js";
import { ago, number, plural } from "./units.js";

const SHOWN_PODS = 4;

/** Pill and meaning of each state. @type {Record<string, ["yes" | "now" | "split" | "unmanaged" | "never", string]>} */
const STATES = {
  asked: ["now", "The autoscaler has been asked, and a pod still waits."],
  proposed: ["split", "A dry run: nothing is created."],
  placed: ["yes", "All pods that still exist have a node."],
  gone: ["unmanaged", "The pods were deleted, or have ended."],
  timed_out: ["never", "Pods still waited after 15 minutes. They are asked for again later."],
  stopped: ["unmanaged", "The setting was changed from on."],
};

const mode = h("p", { class: "hint", role: "status" }, "Loading…");
const list = h("div");
const pane = h("div", { class: "groups" },
  h("div", { class: "welcome" }, h("h2", {}, "Requests for nodes"),
    h("p", {}, "Nodes that the extender asks autoscalers for, because no node has room for a pod on its NUMA nodes.")), mode, list);
/** The names of the requests whose objects are unfolded. @type {Set<string>} */
const unfolded = new Set();

/** @param {HTMLElement} side */
export function showScaleUps(side) {
  showFresh(side, pane, list, refresh);
}

async function refresh() {
  const { mode: setting, scale_ups: all } = await call("/v1/scale-ups");
  const nodes = all.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.nodes, 0);
  const status = `NUMA_EXTENDER_AUTOSCALING is ${setting}: ${plural(all.length, "request")}, ${plural(nodes, "node")}.`;
  if (mode.textContent !== status) mode.textContent = status;
  redraw(list, all.length ? h("ol", { class: "group-list", "aria-label": "Requests for nodes" }, all.map(item))
    : h("p", { class: "hint" }, "No node is asked for. Only the leader knows of requests."));
}

/** @param {any} scaleUp a ScaleUp */
function item({ namespace, name, pods, pools, nodes, since, state, autoscaler, guarded, objects }) {
  const [kind, about] = STATES[state] ?? ["unmanaged", ""];
  const more = pods.length - SHOWN_PODS;
  return h("li", {},
    h("div", { class: "row" }, h("span", { class: "name" }, `${namespace}/${name}`), tag(state.replace("_", " "), kind, about),
      autoscaler ? h("span", { class: "hint" }, `The autoscaler says ${autoscaler}`) : null),
    h("p", {}, `${plural(nodes, "node")} for ${plural(pods.length, "pod")}: ${pods.slice(0, SHOWN_PODS).join(", ")}${more > 0 ? ` and ${number(more)} more` : ""}`),
    h("p", {}, `In ${pools.length === 1 ? "pool" : "one of the pools"} ${pools.join(", ")}`),
    h("p", {}, about, state === "proposed" ? "" : ` Asked ${ago(Date.now() / 1000 - since)}.`,
      guarded ? ` ${plural(guarded, "pod")} must not be moved by the autoscaler.` : ""),
    objects.length ? foldable(name, objects) : null);
}

/** @param {string} name @param {unknown[]} objects */
function foldable(name, objects) {
  const title = `${objects.length} objects that would be created`;
  const details = /** @type {HTMLDetailsElement} */ (code(title, objects.map((each) => JSON.stringify(each, null, 2)).join("\n")));
  details.open = unfolded.has(name);
  details.addEventListener("toggle", () => unfolded[details.open ? "add" : "delete"](name));
  /** @type {HTMLElement} */ (details.firstElementChild).dataset.key = name;
  return details;
}
