// The controls above the nodes. What they offer is what the cluster has.
import { minor } from "./cluster.js";
import { byId, fill, h } from "./dom.js";
import { emit, on, setFilters, state } from "./state.js";
import { KINDS } from "./verdict.js";

const STATES = [["exact", "known exactly"], ["stale", "stale"], ["unknown", "unknown"], ["degraded", "degraded"], ["problems", "with problems"]];
const FREE = ["1", "2", "4", "8", "16", "24", "32", "48", "64", "96", "128"];

/** Make the controls, once. */
export function setUpFilters() {
  const search = /** @type {HTMLInputElement} */ (h("input", {
    type: "search", id: "q", placeholder: "Search nodes by name", "aria-label": "Search nodes by name", autocomplete: "off",
    oninput: () => setFilters({ q: search.value }),
  }));
  const controls = {
    policy: picker("policy", "Policy"),
    scope: picker("scope", "Scope"),
    version: picker("version", "Kubelet"),
    state: picker("state", "State"),
    free: picker("free", "Free on one NUMA"),
    verdict: picker("verdict", "The pod"),
    sort: picker("sort", "Order"),
  };
  const reset = h("button", { type: "button", class: "quiet", onclick: () => clear(search) }, "Reset");
  const labels = Object.values(controls);
  fill(byId("filters"), h("div", { class: "wide" }, search, reset), labels.map(({ label }) => label));

  const show = () => {
    if (document.activeElement !== search) search.value = state.filters.q;
    const nodes = state.nodes;
    controls.policy.offer(unique(nodes.map((node) => node.topology_policy)), state.filters.policy);
    controls.scope.offer(unique(nodes.map((node) => node.topology_scope)), state.filters.scope);
    controls.version.offer(unique(nodes.map((node) => minor(node.kubelet_version))), state.filters.version);
    controls.state.offer(STATES, state.filters.state);
    controls.free.offer(FREE.map((count) => [count, `${count}+ CPUs`]), state.filters.free);
    controls.verdict.offer(Object.entries(KINDS), state.filters.verdict);
    controls.sort.offer([["name", "by name"], ["free", "most free room"]], state.filters.sort, state.answers.size ? "best for the pod" : "by name");
    controls.verdict.label.hidden = state.answers.size === 0;
    reset.hidden = Object.values(state.filters).every((value) => value === "");
  };
  for (const what of /** @type {const} */ (["nodes", "answers", "filters"])) on(what, show);
}

/** @param {HTMLInputElement} search */
function clear(search) {
  search.value = "";
  setFilters({ q: "", policy: "", scope: "", version: "", state: "", free: "", verdict: "", why: "", sort: "" });
  search.focus();
  emit("filters");
}

/** @param {keyof typeof state.filters} key @param {string} title */
function picker(key, title) {
  const select = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => setFilters({ [key]: select.value }) }));
  let offered = "";
  return {
    label: h("label", {}, title, select),
    /** @param {string[][]} options value and text @param {string} value @param {string} [none] */
    offer(options, value, none = "any") {
      const key = JSON.stringify([options, none]);
      if (key !== offered) {
        const known = value && !options.some(([each]) => each === value) ? [...options, [value, value]] : options;
        fill(select, h("option", { value: "" }, none), known.map(([each, text]) => h("option", { value: each }, text)));
        offered = key;
      }
      select.value = value;
    },
  };
}

/** @param {(string | null)[]} values @returns {string[][]} */
function unique(values) {
  const order = new Intl.Collator("en", { numeric: true });
  const found = [...new Set(values)].filter((value) => value !== null && value !== "");
  return /** @type {string[]} */ (found).sort(order.compare).map((value) => [value, value]);
}
