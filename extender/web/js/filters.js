// The controls above the nodes. Their choices are the values in the cluster.
import { NO_FILTERS, minor } from "./cluster.js";
import { byId, fill, h } from "./dom.js";
import { on, setFilters, state } from "./state.js";
import { KINDS } from "./verdict.js";

const STATES = [["exact", "known exactly"], ["assumed", "newer kubelet"], ["possible", "contradictory"], ["stale", "stale"], ["unknown", "unknown"], ["degraded", "degraded"], ["problems", "with problems"]];
const FREE = ["1", "2", "4", "8", "16", "24", "32", "48", "64", "96", "128"];

/** Listen to the controls, and keep them equal to the address. */
export function setUpFilters() {
  const search = /** @type {HTMLInputElement} */ (byId("q"));
  const labels = /** @type {HTMLInputElement} */ (byId("labels"));
  const reset = byId("reset");
  const keys = /** @type {const} */ (["policy", "scope", "version", "state", "free", "verdict", "sort"]);
  const offers = Object.fromEntries(keys.map((key) => [key, picker(key)]));
  search.addEventListener("input", () => setFilters({ q: search.value }));
  labels.addEventListener("change", () => setFilters({ labels: labels.value.trim() }));
  labels.addEventListener("input", () => labels.value || setFilters({ labels: "" })); // the cross of the field
  reset.addEventListener("click", () => {
    search.value = labels.value = "";
    setFilters(NO_FILTERS);
    search.focus();
  });

  const show = () => {
    const { filters, nodes } = state;
    if (document.activeElement !== search) search.value = filters.q;
    if (document.activeElement !== labels) labels.value = filters.labels;
    offers.policy(unique(nodes.map((node) => node.topology_policy)));
    offers.scope(unique(nodes.map((node) => node.topology_scope)));
    offers.version(unique(nodes.map((node) => minor(node.kubelet_version))));
    offers.state(STATES);
    offers.free(FREE.map((count) => [count, `${count}+ CPUs`]));
    offers.verdict(state.answers.size ? Object.entries(KINDS) : [], state.answers.size ? "any" : "–");
    offers.sort([["name", "by name"], ["free", "most room"]], state.answers.size ? "best first" : "by name");
    reset.classList.toggle("unneeded", Object.keys(NO_FILTERS).every((key) => filters[/** @type {keyof typeof filters} */ (key)] === ""));
  };
  for (const what of /** @type {const} */ (["nodes", "answers", "filters"])) on(what, show);
  show();
}

/**
 * One select; gives the function that says what it offers, as values and texts, and how it calls not choosing.
 * @param {keyof import("./cluster.js").Filters} key
 * @returns {(options: string[][], none?: string) => void}
 */
function picker(key) {
  const select = /** @type {HTMLSelectElement} */ (byId("filters").querySelector(`select[name="${key}"]`));
  select.addEventListener("change", () => setFilters({ [key]: select.value }));
  let offered = "";
  return (options, none = "any") => {
    const value = state.filters[key];
    const all = value && !options.some(([each]) => each === value) ? [...options, [value, value]] : options;
    const offer = JSON.stringify([all, none]);
    if (offer !== offered) {
      fill(select, h("option", { value: "" }, none), all.map(([each, text]) => h("option", { value: each }, text)));
      offered = offer;
    }
    select.value = value;
    select.disabled = all.length === 0;
  };
}

/** @param {(string | null)[]} values @returns {string[][]} */
function unique(values) {
  const order = new Intl.Collator("en", { numeric: true });
  const found = [...new Set(values)].filter((value) => value !== null && value !== "");
  return /** @type {string[]} */ (found).sort(order.compare).map((value) => [value, value]);
}
