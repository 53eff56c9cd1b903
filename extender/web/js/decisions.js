// The last calls of kube-scheduler, and the answers of numa-extender.
import { ApiError, call } from "./api.js";
import { fill, h, icon } from "./dom.js";
import { REFRESH_MS } from "./refreshing.js";
import { nodeAddress } from "./state.js";
import { ago, number, plural } from "./units.js";

/** Part of a UID or of NAMESPACE/NAME; empty: all pods. */
let sought = "";

/** A list that keeps itself up to date as long as it is on the page. */
export function decisionList() {
  const list = h("div", {}, h("p", { class: "hint" }, "Loading…"));
  const refresh = async () => {
    if (!document.hidden) await show(list);
    if (list.isConnected) setTimeout(refresh, REFRESH_MS);
  };
  queueMicrotask(refresh);
  const search = /** @type {HTMLInputElement} */ (h("input", { type: "search", placeholder: "Search pods by name", "aria-label": "Search pods by name or UID", value: sought, autocomplete: "off", maxLength: 512 }));
  search.addEventListener("input", () => {
    sought = search.value.trim();
    show(list);
  });
  return h("section", { class: "card", "aria-labelledby": "decisions-title" },
    h("h3", { id: "decisions-title" }, "Recent decisions"),
    h("p", { class: "hint" }, "The last calls of kube-scheduler, the newest first. Choose a refused node to see the kubelet's message."), search, list);
}

/** @param {HTMLElement} list */
async function show(list) {
  try {
    const asked = sought;
    const { decisions } = await call(`/v1/decisions?pod=${encodeURIComponent(asked)}`);
    if (asked !== sought) return;
    const opened = new Set([...list.querySelectorAll("details[open]")].map((each) => /** @type {HTMLElement} */ (each).dataset.pod));
    const focused = list.contains(document.activeElement) ? document.activeElement?.closest("details")?.dataset.pod : undefined;
    if (focused !== undefined) return; // do not redraw what the user is reading
    fill(list, decisions.length
      ? h("ol", { class: "decisions" }, decisions.map((/** @type {any} */ each) => decision(each, opened)))
      : h("p", { class: "hint" }, asked ? `No recent call is about a pod with ${asked} in its name or UID.` : "kube-scheduler has not called for any pod yet."));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(list, h("p", { class: "error" }, error.message));
  }
}

/** @param {any} each a Decision @param {Set<string | undefined>} opened */
function decision({ pod, calls }, opened) {
  const [latest] = calls;
  const ranked = calls.find((/** @type {any} */ each) => each.verb === "prioritize")?.best ?? [];
  const best = ranked.filter((/** @type {any} */ each) => each.score === ranked[0].score).map((/** @type {any} */ each) => each.node);
  const filtered = calls.find((/** @type {any} */ each) => each.verb === "filter") ?? latest;
  const kind = filtered.passed ? "yes" : "never";
  return h("li", { class: kind }, icon(kind),
    h("strong", {}, `${pod.namespace}/${pod.name}`),
    h("time", {}, ago(latest.seconds_ago)),
    h("p", { class: "why" },
      filtered.place ? ["Only ", h("strong", {}, filtered.place), " offered, the place in its group; ", `${plural(filtered.passed, "node")} of ${filtered.candidates} fit`]
        : `${plural(filtered.passed, "node")} of ${filtered.candidates} offered`,
      best.length ? [", best ", h("strong", {}, best.join(", "))] : null),
    filtered.reasons.length ? h("details", { class: "why", data: { pod: pod.uid }, open: opened.has(pod.uid) },
      h("summary", {}, `${plural(filtered.refused, "node")} refused`),
      h("ul", {}, filtered.reasons.map((/** @type {any} */ reason) => h("li", {},
        h("strong", {}, number(reason.nodes)), ` ${reason.reason}: `, refusedNodes(pod.uid, reason))))) : null);
}

/** The refused nodes by name; choosing one shows the reason. @param {string} uid @param {any} reason */
function refusedNodes(uid, { nodes, examples }) {
  const told = h("p", { role: "status" });
  const tell = async (/** @type {string} */ name) => {
    try {
      const { node } = await call(`/v1/pods/${encodeURIComponent(uid)}/decision?node=${encodeURIComponent(name)}`);
      fill(told, h("a", { href: nodeAddress(name) }, name), `: ${node.verdict?.message || node.reason}`);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(told, error.message);
    }
  };
  return h("span", {},
    examples.map((/** @type {string} */ name) => h("button", { type: "button", class: "quiet small", onclick: () => tell(name) }, name)),
    nodes > examples.length ? `and ${number(nodes - examples.length)} more` : null, told);
}
