// What kube-scheduler asked lately, and what it was told.
import { ApiError, call } from "./api.js";
import { fill, h, icon } from "./dom.js";
import { ago, plural } from "./units.js";

const EVERY_MS = 5000;

/** A list that keeps itself up to date as long as it is on the page. */
export function decisionList() {
  const list = h("div", {}, h("p", { class: "hint" }, "Loading…"));
  const refresh = async () => {
    if (!document.hidden) await show(list);
    if (list.isConnected) setTimeout(refresh, EVERY_MS);
  };
  queueMicrotask(refresh);
  return h("section", { class: "card", "aria-labelledby": "decisions-title" },
    h("h3", { id: "decisions-title" }, "Recent decisions"),
    h("p", { class: "hint" }, "What kube-scheduler asked about pods that were waiting, the newest first."), list);
}

/** @param {HTMLElement} list */
async function show(list) {
  try {
    const { decisions } = await call("/v1/decisions");
    fill(list, decisions.length
      ? h("ol", { class: "decisions" }, decisions.map(decision))
      : h("p", { class: "hint" }, "kube-scheduler has not asked about any pod yet."));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(list, h("p", { class: "error" }, error.message));
  }
}

/** @param {any} each a Decision */
function decision({ pod, calls }) {
  const [latest] = calls;
  const ranked = calls.find((/** @type {any} */ each) => each.verb === "prioritize")?.best[0];
  const filtered = calls.find((/** @type {any} */ each) => each.verb === "filter") ?? latest;
  const kind = filtered.passed ? "yes" : "never";
  return h("li", { class: kind }, icon(kind),
    h("strong", {}, `${pod.namespace}/${pod.name}`),
    h("time", {}, ago(latest.seconds_ago)),
    h("p", { class: "why" },
      `${plural(filtered.passed, "node")} of ${filtered.candidates} offered`,
      ranked ? [", best ", h("strong", {}, ranked.node)] : null),
    h("ul", { class: "why" }, filtered.reasons.map((/** @type {any} */ reason) =>
      h("li", {}, h("strong", {}, reason.nodes), ` ${reason.reason}`))));
}
