// Connects all parts. The address decides what is shown.
import { ApiError, call } from "./api.js";
import { askAbout, setUpAsking } from "./ask.js";
import { loadNodes, select } from "./cluster.js";
import { ClusterMap } from "./clustermap.js";
import { Detail } from "./detail.js";
import { byId, fill, h } from "./dom.js";
import { setUpFilters } from "./filters.js";
import { Grid } from "./grid.js";
import { groupOf, groupingOf, groupings } from "./groups.js";
import { showOverview } from "./overview.js";
import { GroupDetail, showGroups } from "./podgroups.js";
import { REFRESH_MS } from "./refreshing.js";
import { addressOf, emit, keepAsked, nodeAddress, on, readAddress, setFilters, state } from "./state.js";
import { TILE, tile } from "./tile.js";
import { number, plural } from "./units.js";

const NODES_MS = 15_000; // between two requests for all nodes
const SLOWNESS = 20; // times the loading time, so that a large cluster is loaded less often

const side = byId("side");
const grid = new Grid(byId("list"), {
  label: "Nodes", ...TILE,
  render: (/** @type {import("./cluster.js").NodeSummary} */ node) =>
    tile(node, state.answers.get(node.name), { href: nodeAddress(node.name), current: node.name === state.route.name }),
});
const TILES_FIT = 40; // nodes; a larger cluster is shown as a map by default
const clusterMap = new ClusterMap(byId("cluster-map"), byId("keys"), {
  open: (name) => { location.hash = nodeAddress(name); },
  zoom: (group) => setFilters({ show: "tiles", group }),
  filter: (filter) => setFilters(Object.entries(filter).every(([key, value]) => state.filters[/** @type {"free"} */ (key)] === value)
    ? Object.fromEntries(Object.keys(filter).map((key) => [key, ""])) : filter),
});
/** @type {Detail | GroupDetail | null} What the right pane keeps up to date: a node or a group of pods. */
let detail = null;

/** The selector of the last request for all nodes. */
let wantedLabels = "";

async function load() {
  const labels = wantedLabels = state.filters.labels;
  const field = byId("labels");
  try {
    const nodes = await loadNodes(labels);
    if (labels !== wantedLabels) return;
    field.removeAttribute("aria-invalid");
    state.nodes = nodes;
    showCluster();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (labels !== wantedLabels) return;
    byId("cluster").textContent = error.message.replace("query.label_selector", "Labels");
    if (error.field !== "query.label_selector") return;
    field.setAttribute("aria-invalid", "true");
    state.nodes = [];
  }
  emit("nodes");
}

async function refresh() {
  const began = performance.now();
  if (!document.hidden || state.nodes.length === 0) await load();
  const pause = document.documentElement.hasAttribute("data-away") ? REFRESH_MS : NODES_MS;
  setTimeout(refresh, Math.max(pause, SLOWNESS * (performance.now() - began)));
}

function showCluster() {
  const { nodes } = state;
  const sum = (/** @type {"cpus" | "free_cpus"} */ key) => number(nodes.reduce((total, node) => total + node[key], 0));
  const doubtful = nodes.filter((node) => node.certainty !== "exact" || node.hidden.length).length;
  byId("cluster").textContent = nodes.length
    ? `${plural(nodes.length, "node")}${state.filters.labels ? ` with ${state.filters.labels}` : ""} · ${sum("cpus")} CPUs · ${sum("free_cpus")} free for exclusive use${doubtful ? ` · ${doubtful} not known exactly` : ""}`
    : state.filters.labels ? `No node is known to have the labels ${state.filters.labels}` : "No node has reported yet";
}

/** Whether the nodes are shown as a map of cells. */
function isMap() {
  const { show } = state.filters;
  return state.route.view === "nodes" && (show === "map" || (show !== "tiles" && state.nodes.length > TILES_FIT));
}

function showList() {
  const { nodes, answers, filters } = state;
  const grouping = groupingOf(filters.by, nodes, answers);
  const chosen = select(nodes, filters, answers, (node) => groupOf(grouping, node, answers), new Set(Object.keys(state.reply?.pod.requests ?? {})));
  const all = nodes.length;
  byId("count").textContent = chosen.length === all ? plural(all, "node") : `${number(chosen.length)} of ${plural(all, "node")}`;
  showModes(grouping);
  if (isMap()) clusterMap.show(nodes, { answers, grouping, chosen: chosen.length === all ? null : new Set(chosen.map((node) => node.name)) });
  else grid.show(chosen);
}

/** @param {string} grouping */
function showModes(grouping) {
  const map = isMap();
  document.documentElement.toggleAttribute("data-map", map);
  byId("as-map").setAttribute("aria-pressed", String(map));
  byId("as-tiles").setAttribute("aria-pressed", String(!map));
  byId("by-label").hidden = !map;
  const by = /** @type {HTMLSelectElement} */ (byId("by"));
  const offers = groupings(state.answers);
  if (by.length !== offers.length) fill(by, offers.map(([value, text]) => h("option", { value }, text)));
  by.value = grouping;
  const group = byId("group");
  group.hidden = !state.filters.group;
  fill(group, `${state.filters.group} ×`, h("span", { class: "sr" }, " show all groups"));
}

function setUpModes() {
  byId("as-map").addEventListener("click", () => {
    setFilters({ show: "map", group: "" });
    if (state.route.view !== "nodes") location.hash = addressOf("");
  });
  byId("as-tiles").addEventListener("click", () => setFilters({ show: "tiles" }));
  byId("group").addEventListener("click", () => {
    setFilters({ group: "" });
    byId("as-tiles").focus();
  });
  byId("by").addEventListener("change", (event) => {
    setFilters({ by: /** @type {HTMLSelectElement} */ (event.target).value, group: "" });
  });
}

/** @typedef {(side: HTMLElement, left: import("./state.js").GroupKey | null) => void} Show */
/** The right pane of views without a name; some are loaded when they are opened. @type {Record<string, [string, () => Show | Promise<Show>]>} */
const PANES = {
  nodes: ["Overview", () => showOverview],
  decisions: ["Decisions", () => showOverview],
  groups: ["Groups of pods", () => showGroups],
  advice: ["Advice", async () => (await import("./advice.js")).showAdvice],
  shapes: ["Declared shapes", async () => (await import("./shapes.js")).showShapes],
  audit: ["Audit", async () => (await import("./audit.js")).showAudit],
  "scale-ups": ["Requests for nodes", async () => (await import("./scaleups.js")).showScaleUps],
  kueue: ["Admission check of Kueue", async () => (await import("./kueue.js")).showKueue],
};

function showRoute() {
  const { view, name } = state.route;
  document.documentElement.dataset.view = view;
  document.title = name ? `${name} · numa-extender` : "numa-extender";
  for (const link of document.querySelectorAll("nav [data-for]")) {
    const own = link.getAttribute("data-for") ?? "";
    link.setAttribute("href", addressOf(own === "nodes" ? "" : own));
    if (own === view || (own === "groups" && view === "group")) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  showSide();
  showList();
  if (view === "node") grid.reveal(name);
}

/** The address whose details the right pane shows. */
let shownSide = "";

function showSide() {
  const { view, name, group } = state.route;
  const wanted = JSON.stringify([view, name, group]);
  if (detail && shownSide === wanted) return;
  shownSide = wanted;
  const left = detail instanceof GroupDetail ? detail.key : null;
  detail?.stop();
  detail = view === "node" ? new Detail(name, side) : group ? new GroupDetail(group, side) : null;
  const [label, pane] = PANES[view] ?? PANES.nodes;
  side.setAttribute("aria-label", detail ? `${group ? "Group" : "Node"} ${name}` : label);
  if (detail) side.scrollTop = 0;
  else showPane(pane, wanted, left);
}

/** @param {() => Show | Promise<Show>} pane @param {string} wanted the address that it is for @param {import("./state.js").GroupKey | null} left */
async function showPane(pane, wanted, left) {
  const show = await Promise.resolve().then(pane).catch((error) => {
    if (!(error instanceof TypeError)) throw error; // the browser's error if a file cannot be loaded
    return () => fill(side, h("p", { class: "error", role: "alert" }, "This section cannot be loaded. Reload the page once the service runs."));
  });
  if (shownSide === wanted) show(side, left);
}

/** Show the links to the sections of features that are not off. */
async function offerFeatures() {
  try {
    for (const view of ["scale-ups", "kueue"]) byId(`${view}-link`).hidden = (await call(`/v1/${view}`)).mode === "off";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

/** Escape leaves a node for the tile that it was opened from, and a group for the list. @param {KeyboardEvent} event */
function onKey(event) {
  const { view, name } = state.route;
  if (event.key !== "Escape" || event.defaultPrevented) return;
  if (view === "group") location.hash = addressOf("groups");
  if (view !== "node") return;
  returnTo = name;
  location.hash = addressOf("");
}

/** The node that was closed with Escape. It gets the focus again. */
let returnTo = "";

addEventListener("hashchange", () => {
  const before = shownSide;
  const asked = readAddress();
  if (asked && asked !== state.asked) askAbout(asked);
  else keepAsked();
  emit("filters");
  emit("route");
  if (detail && shownSide !== before) side.focus({ preventScroll: true });
  if (returnTo) (isMap() ? clusterMap : grid).focus(returnTo);
  returnTo = "";
});
side.addEventListener("keydown", onKey);
on("route", showRoute);
on("nodes", () => {
  showList();
  if (state.route.view === "node") grid.reveal(state.route.name);
});
on("filters", () => {
  showList();
  if (state.filters.labels !== wantedLabels) load();
});
on("answers", () => {
  showList();
  byId("list").scrollTop = 0; // the best nodes are at the top
  if (state.route.view === "node") grid.reveal(state.route.name);
  if (detail instanceof Detail) detail.ask();
});
document.addEventListener("themechange", showList);
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault(); // the page uses the fragment of the address itself
  if (isMap()) clusterMap.focus(state.nodes[0]?.name ?? "");
  else grid.focus(grid.active ?? "");
});

const asked = readAddress();
setUpFilters();
setUpModes();
showRoute();
setUpAsking(asked);
document.addEventListener("away", (event) => {
  const { since } = /** @type {CustomEvent<{since: Date | null}>} */ (event).detail;
  document.documentElement.toggleAttribute("data-away", since !== null);
  byId("away").textContent = since && `The service has not answered since ${since.toLocaleTimeString()}: what is shown is from before.`;
});
refresh().then(offerFeatures);
