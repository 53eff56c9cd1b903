// The state of the page. Parts listen for changes: "nodes", "answers", "filters", "route".
import { NO_CHOICES } from "./cluster.js";

/** @typedef {{source: string, namespace: string, name: string}} GroupKey of a group of pods */
/**
 * What is shown. `name`: of the node or the group.
 * @typedef {{view: "nodes" | "node" | "pod" | "decisions" | "advice" | "groups" | "group" | "shapes" | "audit" | "scale-ups" | "kueue", name: string, group: GroupKey | null}} Route
 */

export const state = {
  /** @type {import("./cluster.js").NodeSummary[]} */
  nodes: [],
  /** The pod or workload in question, as pasted; empty: none, or several of them. */
  manifest: "",
  /** The text of the last question that was answered; it is in the address, so that it can be sent. */
  asked: "",
  /** What the service answered to it. @type {any} */
  reply: null,
  /** The plan for several workloads. @type {import("./plan.js").Plan | null} */
  plan: null,
  /** What the pods of the plan would get, by node, as a verdict. @type {Map<string, any>} */
  placements: new Map(),
  /** @type {Map<string, import("./verdict.js").Answer>} */
  answers: new Map(),
  /** @type {import("./cluster.js").Filters} */
  filters: { ...NO_CHOICES },
  /** @type {Route} */
  route: { view: "nodes", name: "", group: null },
};

const changes = new EventTarget();

/** @param {"nodes" | "answers" | "filters" | "route"} what @param {() => void} listener */
export function on(what, listener) {
  changes.addEventListener(what, listener);
}

/** @param {"nodes" | "answers" | "filters" | "route"} what */
export function emit(what) {
  changes.dispatchEvent(new Event(what));
}

const MAX_ASKED = 8000; // characters of a question in the address

/** Read the address. Returns the question in it; empty: it has none. */
export function readAddress() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [head, ...rest] = path.split("/");
  const asked = new URLSearchParams(query);
  for (const key of /** @type {(keyof typeof NO_CHOICES)[]} */ (Object.keys(NO_CHOICES))) {
    state.filters[key] = asked.get(key) ?? "";
  }
  state.route = routeOf(head, rest.map(decoded));
  return asked.get("ask") ?? "";
}

/** Put the question into the address, without a step in the history. */
export function keepAsked() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const asked = new URLSearchParams(query);
  if ((asked.get("ask") ?? "") === state.asked) return;
  asked.delete("ask");
  if (state.asked && state.asked.length <= MAX_ASKED) asked.set("ask", state.asked);
  history.replaceState(null, "", `#/${path}${asked.size ? `?${asked}` : ""}`);
}

/** @param {string} head @param {string[]} rest @returns {Route} */
function routeOf(head, rest) {
  const name = rest.join("/");
  if (head === "nodes" && name) return { view: "node", name, group: null };
  if (head === "groups" && rest.length === 3) {
    const group = { source: rest[0], namespace: rest[1], name: rest[2] };
    return { view: "group", name: `${group.namespace}/${group.name}`, group };
  }
  const known = /** @type {const} */ (["pod", "decisions", "advice", "groups", "shapes", "audit", "scale-ups", "kueue"]).find((view) => view === head);
  return { view: known ?? "nodes", name: "", group: null };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a view, with the filters that are set. @param {string} path such as "nodes/xeon-b" */
export function addressOf(path) {
  const set = Object.entries(state.filters).filter(([, value]) => value !== "");
  const query = new URLSearchParams(set).toString();
  return `#/${path}${query ? `?${query}` : ""}`;
}

/** @param {string} name */
export function nodeAddress(name) {
  return addressOf(`nodes/${encodeURIComponent(name)}`);
}

/** @param {GroupKey} group */
export function groupAddress({ source, namespace, name }) {
  return addressOf(["groups", ...[source, namespace, name].map(encodeURIComponent)].join("/"));
}

/** Put changed filters into the address without a step in the history. @param {Partial<import("./cluster.js").Filters>} changed */
export function setFilters(changed) {
  Object.assign(state.filters, changed);
  // The path of the address, not `state.route`: that one is older between a click on a link and its event "hashchange".
  history.replaceState(null, "", addressOf(location.hash.replace(/^#\/?/, "").split("?")[0]));
  keepAsked();
  emit("filters");
}
