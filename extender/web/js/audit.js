// The audit: what was predicted of pods, and what their kubelets did.
import { call } from "./api.js";
import { fill, h, table, tag } from "./dom.js";
import { showFresh } from "./refreshing.js";
import { nodeAddress } from "./state.js";
import { ago, number, plural } from "./units.js";

const RESULTS = /** @type {const} */ ({ agreed: "agreed", placement: "placed elsewhere", false_admit: "false admit", false_refusal: "false refusal", other: "other reason", unsettled: "not settled" });
const WRONG = ["placement", "false_admit", "false_refusal"];

const results = h("div", { class: "groups audit" });
const pane = h("div", { class: "groups" },
  h("div", { class: "welcome" }, h("h2", {}, "Audit"),
    h("p", {}, "Each prediction since the extender started, compared with what the kubelet then did.")), results);

/** @param {HTMLElement} side */
export function showAudit(side) {
  showFresh(side, pane, results, refresh);
}

async function refresh() {
  const audit = await call("/v1/audit");
  if (!results.contains(document.activeElement)) fill(results, ...parts(audit));
}

/** @param {any} audit an AuditView */
function parts({ counts, nodes, recent, behaviours, demands, left_out, pods_in_flight }) {
  const sum = (/** @type {(count: any) => boolean} */ isCounted) => counts.filter(isCounted).reduce((/** @type {number} */ total, /** @type {any} */ each) => total + each.count, 0);
  const all = sum(() => true);
  const wrong = sum(({ result }) => WRONG.includes(result));
  return [
    h("div", { class: "row" }, h("strong", {}, plural(all, "prediction")),
      wrong ? tag(`${number(wrong)} wrong`, "never") : all ? tag("none wrong", "yes") : null,
      h("span", { class: "hint" }, `${plural(pods_in_flight, "pod")} not reported yet`)),
    all ? byKubelet(counts) : h("p", { class: "hint" }, "No pod that was judged has been reported by its node yet."),
    ...section(`Nodes with wrong predictions`, nodes, (/** @type {any} */ { name, disagreements, results: last, distrusted }) => [
      h("a", { class: "name", href: nodeAddress(name) }, name),
      h("p", {}, `${number(disagreements)} of its last ${plural(last, "result")}`, distrusted ? " · verdicts only score it" : null)]),
    ...section("Wrong predictions, the newest first", recent, disagreement),
    ...section("Kubelets that carry a fix, or lack one", behaviours, (/** @type {any} */ { node_name, rule, value, agreeing, examined }) => [
      h("a", { class: "name", href: nodeAddress(node_name) }, node_name),
      h("p", {}, `behaves as ${value ? "with" : "without"} `, h("code", {}, rule), `: ${number(agreeing)} of ${plural(examined, "failed prediction")} agree then`)]),
    ...section("Nodes left out after a refusal", left_out, (/** @type {any} */ { node_name, namespace, pod_name, reason, seconds_left }) => [
      h("a", { class: "name", href: nodeAddress(node_name) }, node_name),
      h("p", {}, `for pods like ${namespace}/${pod_name}, ${Math.round(seconds_left)} s more: ${reason}`)]),
    h("p", { class: "hint" }, `Demands of alignment: ${number(demands.met)} met, ${number(demands.broken)} broken, ${number(demands.not_known)} not known`),
  ];
}

/** The predictions by version, policy and certainty: a column for each result. @param {any[]} counts */
function byKubelet(counts) {
  /** @type {Map<string, {first: any, by: Record<string, number>}>} */
  const rows = new Map();
  for (const each of counts) {
    const key = [each.version, each.policy, each.scope, each.certainty].join(" ");
    const row = rows.get(key) ?? { first: each, by: {} };
    row.by[each.result] = (row.by[each.result] ?? 0) + each.count;
    rows.set(key, row);
  }
  return table("Predictions by kubelet", ["Kubelet", ...Object.values(RESULTS).map((num) => ({ num }))],
    [...rows.values()].map(({ first, by }) => [[first.version, h("span", { class: "hint" }, `${first.policy}/`, h("wbr"), first.scope, h("br"), first.certainty)],
      ...Object.keys(RESULTS).map((result) => ({ num: WRONG.includes(result) && by[result] ? h("strong", { class: "error" }, number(by[result])) : number(by[result] ?? 0) }))]));
}

/** A list with a heading; nothing if it is empty. @param {string} title @param {any[]} entries @param {(entry: any) => import("./dom.js").Child[]} item */
function section(title, entries, item) {
  if (!entries.length) return [];
  return [h("h3", {}, title), h("ol", { class: "group-list", "aria-label": title }, entries.map((each) => h("li", {}, item(each))))];
}

/** @param {any} wrong a DisagreementView */
function disagreement({ kind, seconds_ago, node_name, namespace, pod_name, predicted, reported, agrees_with }) {
  return [
    h("div", { class: "row" }, h("span", { class: "name" }, `${namespace}/${pod_name}`),
      tag(RESULTS[/** @type {keyof typeof RESULTS} */ (kind.result)], "never"), h("span", { class: "hint" }, ago(seconds_ago))),
    h("p", {}, "on ", h("a", { href: nodeAddress(node_name) }, node_name), `, kubelet ${kind.version}, ${kind.policy}/${kind.scope}, ${kind.certainty}`),
    h("dl", { class: "both" }, h("dt", {}, "predicted"), h("dd", {}, predicted), h("dt", {}, "kubelet"), h("dd", {}, reported)),
    agrees_with?.length ? h("p", {}, `It agrees with ${agrees_with.join(" or ")}.`) : null,
  ];
}
