// Groups of pods that are placed together or not at all: the list, one group, and places on one node.
import { ApiError, call } from "./api.js";
import { fill, h, icon, table, tag } from "./dom.js";
import { REFRESH_MS, keepFresh } from "./refreshing.js";
import { addressOf, groupAddress, nodeAddress } from "./state.js";
import { ago, number, numaNames, plural } from "./units.js";

const PAGE = 50;
const SHOWN_NODES = 4;

/** @typedef {"open" | "holding" | "waiting" | "single" | "placed"} State */

/** What each state is called: class of the pill, icon, meaning. @type {Record<State, ["yes" | "now" | "split" | "unmanaged" | "never", "yes" | "now" | "warning" | "unmanaged" | "never", string]>} */
const STATES = {
  open: ["now", "warning", "Some of its pods are bound, and not all."],
  holding: ["split", "now", "Places are held for all of its pods. None is bound before all have come."],
  waiting: ["never", "never", "No places are held for it, and none of its pods is bound."],
  single: ["unmanaged", "unmanaged", "Its pods are judged one by one, as pods without a group."],
  placed: ["yes", "yes", "All pods that must run together are bound, or were until some of them ended."],
};

/** What names a group. @type {Record<string, string>} */
const SOURCES = {
  annotation: "annotation numa-extender.io/group", coscheduling: "PodGroup of coscheduling", pod_group: "PodGroup",
  workload: "Workload", leader_worker_set: "LeaderWorkerSet", job_set: "JobSet",
};

const choice = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => load("") }));
const search = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "Search groups by name", autocomplete: "off", "aria-label": "Search groups by name", oninput: () => load("") }));
const count = h("p", { class: "hint", role: "status" }, "Loading…");
const list = h("div");
const further = h("div", { class: "row" });
const filters = h("search", { class: "group-filters" }, search, h("label", {}, "State ", choice));
const pane = h("div", { class: "groups" },
  h("div", { class: "welcome" }, h("h2", {}, "Groups of pods"),
    h("p", {}, "The pods of a group are placed together or not at all. Places are held until all of them have come.")),
  filters, count, list, further);
fill(choice, h("option", { value: "" }, "all"));

/** Where the page that is shown starts: `next` of the page before it. */
let after = "";
/** The group whose link gets the focus when the list is loaded. */
let returnTo = "";
/** @type {AbortController | null} */
let loading = null;
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** @param {HTMLElement} side @param {import("./state.js").GroupKey | null} left the group from which the user comes back */
export function showGroups(side, left) {
  fill(side, pane);
  returnTo = left ? keyOf(left) : "";
  load(left ? after : "");
}

/** Load the page of the list that starts there, and again from time to time. @param {string} start */
async function load(start) {
  clearTimeout(timer);
  loading?.abort();
  const control = loading = new AbortController();
  after = start;
  if (!document.hidden || !list.hasChildNodes()) await refresh(control.signal);
  if (pane.isConnected && !control.signal.aborted) timer = setTimeout(() => load(after), REFRESH_MS);
}

/** @param {AbortSignal} signal */
async function refresh(signal) {
  const query = new URLSearchParams({ limit: String(PAGE), ...(choice.value && { state: choice.value }), ...(search.value && { name: search.value.trim() }), ...(after && { after }) });
  try {
    show(await call(`/v1/groups?${query}`, { signal }));
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ApiError)) throw error;
    count.hidden = false;
    say(error.message);
  }
}

/** @param {any} reply a GroupsView */
function show({ enabled, total, states, groups, next }) {
  const all = Object.values(states).reduce((sum, each) => sum + each, 0);
  filters.hidden = count.hidden = !all;
  offerStates(states, all);
  say(!all ? "" : total === all ? plural(all, "group") : `${number(total)} of ${plural(all, "group")}`);
  redraw(list, !all ? enabled ? noGroups() : turnedOff()
    : groups.length ? h("ol", { class: "group-list", "aria-label": "Groups of pods" }, groups.map(item))
      : h("p", { class: "hint" }, "No group matches."));
  redraw(further,
    after ? h("button", { type: "button", data: { key: "first" }, onclick: () => load("") }, "First page") : null,
    next ? h("button", { type: "button", data: { key: "next" }, onclick: () => load(next) }, "Next page") : null);
  if (returnTo) withKey(list, returnTo)?.focus();
  returnTo = "";
}

/** The choice of states with their numbers; untouched if these are the same, because it may be open. @param {Record<string, number>} states @param {number} all */
function offerStates(states, all) {
  const chosen = choice.value;
  const offers = [["", `all (${number(all)})`], ...Object.keys(STATES).filter((state) => states[state] || state === chosen).map((state) => [state, `${state} (${number(states[state] ?? 0)})`])];
  if ([...choice.options].map(({ text }) => text).join() === offers.map(([, text]) => text).join()) return;
  fill(choice, offers.map(([value, text]) => h("option", { value }, text)));
  choice.value = chosen;
}

/** @param {string} text */
function say(text) {
  if (count.textContent !== text) count.textContent = text;
}

/** Draw again. What had the focus has it afterwards. @param {HTMLElement} root @param {...(Node | null)} children */
export function redraw(root, ...children) {
  const { activeElement } = document;
  const key = activeElement instanceof HTMLElement && root.contains(activeElement) ? activeElement.dataset.key : undefined;
  fill(root, ...children);
  if (key !== undefined) withKey(root, key)?.focus({ preventScroll: true });
}

/** @param {HTMLElement} root @param {string} key @returns {HTMLElement | undefined} */
function withKey(root, key) {
  return [.../** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-key]"))].find((each) => each.dataset.key === key);
}

/** @param {import("./state.js").GroupKey} group */
function keyOf({ source, namespace, name }) {
  return JSON.stringify([source, namespace, name]);
}

function turnedOff() {
  return h("section", { class: "card", "aria-label": "Groups are off" },
    h("p", {}, "Pods of a group are judged one by one: the setting ", h("code", {}, "NUMA_EXTENDER_GANGS"), " is off."),
    h("p", { class: "hint" }, "Set ", h("code", {}, "NUMA_EXTENDER_GANGS=on"), " and give kube-scheduler the ", h("code", {}, "bindVerb"),
      ". Sizes in PodGroups, Workloads and JobSets need ", h("code", {}, "NUMA_EXTENDER_GANG_APIS"), " as well."));
}

function noGroups() {
  return h("section", { class: "card", "aria-label": "No groups" },
    h("p", {}, "No pod of a group has come to the extender yet."),
    h("p", { class: "hint" }, "A pod is in a group by the annotations ", h("code", {}, "numa-extender.io/group"), " and ", h("code", {}, "numa-extender.io/group-size"),
      ", by a PodGroup or a Workload, by coscheduling, by a LeaderWorkerSet or by a JobSet. Groups without pods are forgotten after 10 minutes."));
}

/** @param {any} group a GroupView */
function item(group) {
  const { namespace, name, source } = group;
  return h("li", {},
    h("div", { class: "row" },
      h("a", { class: "name", href: groupAddress(group), data: { key: keyOf(group) } }, `${namespace}/${name}`),
      stateTag(group), h("span", { class: "hint" }, SOURCES[source] ?? source)),
    h("div", { class: "pods" }, pods(group), share(group)),
    h("p", {}, now(group)), nodeLinks(group));
}

/** @param {any} group */
function stateTag({ state, fit }) {
  const [kind, picture, about] = state === "waiting" && fit === null ? ["unmanaged", /** @type {const} */ ("now"), STATES.waiting[2]] : STATES[/** @type {State} */ (state)];
  return h("span", { class: `tag ${kind}`, title: about }, icon(picture), state);
}

/** How many pods are bound, have a place, or have none. @param {any} group */
function pods({ size, bound, claimed, missing }) {
  if (size < 2) return h("span", {}, `${plural(bound, "pod")} bound`);
  if (missing === size) return h("span", {}, `${plural(size, "pod")}, none with a place`);
  const parts = [[bound, "bound"], [claimed, "with a place"], [missing, "without a place"]];
  return h("span", {}, `${plural(size, "pod")}: `, parts.filter(([amount]) => amount).map(([amount, text]) => `${number(/** @type {number} */ (amount))} ${text}`).join(", "));
}

/** @param {any} group */
function share({ size, bound, claimed, missing }) {
  if (size < 2) return null;
  const parts = /** @type {[string, number][]} */ ([["yes", bound], ["split", claimed], ["", missing]]);
  return h("div", { class: "share", "aria-hidden": "true" }, parts.filter(([, amount]) => amount).map(([kind, amount]) => h("i", { class: kind, vars: { flex: String(amount) } })));
}

/** The nodes of a group with the number of its pods or places there. @param {any} group */
function nodeLinks({ source, namespace, name: own, places, bound, held }) {
  /** @type {Map<string, number>} */
  const nodes = new Map();
  for (const { node_name: name } of places) if (name) nodes.set(name, (nodes.get(name) ?? 0) + 1);
  if (!nodes.size) return null;
  const shown = [...nodes].slice(0, SHOWN_NODES);
  const hasMore = nodes.size > shown.length || bound + held > places.length;
  return h("p", {}, "On ", shown.flatMap(([name, amount], i) => [i ? ", " : "",
    h("a", { href: nodeAddress(name), data: { key: JSON.stringify([source, namespace, own, name]) } }, name), amount > 1 ? ` (${amount})` : ""]), hasMore ? " and more" : "");
}

/** What the group waits for, and for how long still. @param {any} group */
function now({ note, seconds_left: left, rests_seconds: rests }) {
  const time = left !== null ? `Its places are held for ${seconds(left)}.` : rests > 0 ? `It rests for ${seconds(rests)}.` : "";
  const said = note ? `${note[0].toUpperCase()}${note.slice(1)}.` : "";
  return [said, said && time ? " " : "", time].join("");
}

/** @param {number} amount */
function seconds(amount) {
  if (amount < 120) return `${Math.ceil(amount)} s more`;
  return amount < 7200 ? `${Math.round(amount / 60)} min more` : `${Math.round(amount / 3600)} h more`;
}

/** One group in full, kept up to date until stopped. */
export class GroupDetail {
  /** @param {import("./state.js").GroupKey} key @param {HTMLElement} side */
  constructor(key, side) {
    this.key = key;
    this.name = `${key.namespace}/${key.name}`;
    this.control = new AbortController();
    this.facts = h("div", { class: "facts" });
    this.said = h("p", { role: "status" });
    this.body = h("div", { class: "groups" }, h("p", { class: "hint" }, "Loading…"));
    fill(side, h("header", { class: "detail-head" },
      h("div", { class: "row" }, h("h2", {}, this.name), h("a", { class: "close", href: addressOf("groups") }, "All groups")), this.facts),
    this.said, this.body);
    keepFresh(() => this.refresh(), this.control.signal);
  }

  stop() {
    this.control.abort();
  }

  async refresh() {
    if (document.hidden && this.facts.hasChildNodes()) return;
    try {
      this.show(await call(`/v1/group?${new URLSearchParams(this.key)}`, { signal: this.control.signal }));
    } catch (error) {
      if (this.control.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (error.status !== 404 && this.facts.hasChildNodes()) { // keep what was known on the page
        this.said.textContent = error.message;
        return;
      }
      fill(this.facts);
      fill(this.said);
      fill(this.body, h("p", { class: "error", role: "alert" }, error.message),
        error.status === 404 ? h("p", { class: "hint" }, "A group is forgotten when none of its pods is bound, and none has come for 10 minutes.") : null);
    }
  }

  /** @param {any} group a GroupView */
  show(group) {
    const { state, source, priority, seen_seconds_ago: seen } = group;
    fill(this.facts, stateTag(group), tag(SOURCES[source] ?? source), priority ? tag(`priority ${priority}`) : null, tag(`seen ${ago(seen)}`));
    const said = `${STATES[/** @type {State} */ (state)][2]} ${now(group)}`.trim();
    if (this.said.textContent !== said) this.said.textContent = said;
    redraw(this.body, h("section", { class: "card", "aria-label": "Pods of the group" }, pods(group), share(group)), refusals(group), places(group));
  }
}

/** Why the group does not fit, by the last plan. @param {any} group */
function refusals({ fit, size, why }) {
  if (fit === null) return null;
  const rows = Object.entries(why).sort(([, a], [, b]) => b - a).map(([reason, nodes]) => [reason, { num: number(nodes) }]);
  return h("section", { class: "card never", "aria-labelledby": "unfit-title" },
    h("h3", { id: "unfit-title" }, icon("never"), `${number(fit)} of ${plural(size, "pod")} fit`),
    h("p", { class: "hint" }, "By the last plan. One more pod is refused by these nodes:"),
    rows.length ? table("Nodes that refuse one more pod, by reason", ["Reason", { num: "Nodes" }], rows) : h("p", {}, "No node was looked at."));
}

/** @param {any} group */
function places({ places: shown, bound, held }) {
  if (!shown.length) return null;
  const rows = shown.map((/** @type {any} */ { uid, pod, node_name: node, bound: isBound, numa }, /** @type {number} */ i) => [
    pod ? h("span", { title: uid }, pod) : uid ? h("code", {}, uid) : h("span", { class: "hint" }, "a pod that has not come"),
    node ? h("a", { href: nodeAddress(node), data: { key: `node ${node} ${i}` } }, node) : "any node",
    numa ? numaNames(numa) : "–",
    isBound ? tag("bound", "yes") : h("span", { class: "tag split" }, icon("now"), "held"),
  ]);
  return h("section", {}, h("h3", {}, "Places"),
    h("p", { class: "hint" }, "NUMA nodes of held places are those of a replay now. A dash: not known, or no NUMA node in particular."),
    table("Places", ["Pod", "Node", "NUMA nodes", "State"], rows),
    bound + held > shown.length ? h("p", { class: "hint" }, `and ${number(bound + held - shown.length)} more`) : null);
}

/** The groups that hold places on a node; null: none. @param {string} node @param {AbortSignal} signal @returns {Promise<HTMLElement | null>} */
export async function heldPlaces(node, signal) {
  const { groups, total } = await call(`/v1/groups?${new URLSearchParams({ node, limit: String(SHOWN_NODES) })}`, { signal });
  if (!groups.length) return null;
  return h("section", { class: "card split", "aria-labelledby": "held-title" },
    h("h3", { id: "held-title" }, icon("now"), "Room held for groups of pods"),
    h("p", { class: "hint" }, "Other pods are offered this node only if they fit beside these places."),
    h("ul", { class: "problems" }, groups.map((/** @type {any} */ group) => {
      const here = group.places.filter((/** @type {any} */ place) => !place.bound && place.node_name === node).length;
      return h("li", {}, stateTag(group), h("a", { href: groupAddress(group), data: { key: keyOf(group) } }, `${group.namespace}/${group.name}`), `: ${plural(here, "place")} here. `, now(group));
    })),
    total > groups.length ? h("p", { class: "hint" }, `and ${plural(total - groups.length, "more group")}`) : null);
}
