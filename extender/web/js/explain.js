// The explanation: the hints of each manager, their merge, and what would change the answer.
import { ApiError, ask } from "./api.js";
import { askAbout } from "./ask.js";
import { fill, h, icon, table, tag } from "./dom.js";
import { changesOf, differences, withChanges } from "./manifest.js";
import { amount, bytes, cpus, numaNames, shortIds } from "./units.js";
import { ADMITTED, KINDS, answerOf, verdictParts } from "./verdict.js";

const POLICIES = ["none", "best-effort", "restricted", "single-numa-node"];
const SCOPES = ["container", "pod"];
const SHOWN_HINTS = 8;

/** @param {any} explanation */
export function story(explanation) {
  const { steps } = explanation;
  if (!steps.length) return null;
  const hints = steps.filter((/** @type {any} */ step) => step.step === "hints");
  const pools = steps.filter((/** @type {any} */ step) => step.step === "pools");
  const others = steps.filter((/** @type {any} */ step) => step.step !== "hints" && step.step !== "pools");
  return h("details", {},
    h("summary", {}, pools.length ? "How the node decides" : "How the kubelet decides"),
    hints.length ? table("Hints of each manager", ["For", "Resource", "Wanted", "NUMA nodes that could serve it"], hints.map(hintRow)) : null,
    h("ol", { class: "problems" }, others.map(otherStep)),
    pools.map(poolsTable),
    explanation.steps_left_out ? h("p", { class: "hint" }, `${explanation.steps_left_out} more steps are left out.`) : null);
}

/** The pools of the NRI topology-aware policy for one container, the used one first. @param {any} step */
function poolsTable(step) {
  const title = `Pools of the NRI policy for container ${step.container}`;
  if (!step.pools.length) return h("p", { class: "hint" }, `${title}: it goes to the root pool, without a comparison.`);
  const hasHints = step.pools.some((/** @type {any} */ pool) => pool.hint_score !== null);
  const rows = step.pools.map((/** @type {any} */ pool, /** @type {number} */ i) => [
    pool.pool,
    cpuLeft(pool),
    pool.memory_numa ? `NUMA ${shortIds(pool.memory_numa)}` : tag("none", "never"),
    ...(hasHints ? [`${Math.round(100 * pool.hint_score)} %`] : []),
    i ? pool.why_not : step.refusal ? tag("first, and refused", "never") : tag("used", "yes"),
  ]);
  return h("section", {}, h("h4", {}, title),
    table(title, ["Pool", "CPU left with it", "Memory from", ...(hasHints ? ["Close to devices"] : []), "Used, or why not"], rows),
    step.refusal ? h("p", { class: "error" }, step.refusal) : null,
    step.pools_left_out ? h("p", { class: "hint" }, `${step.pools_left_out} more pools are left out.`) : null);
}

/** @param {any} pool */
function cpuLeft(pool) {
  const isolated = pool.isolated_left ? ` and ${pool.isolated_left} isolated` : "";
  return pool.shared_left_millicpu < 0 ? tag(`${cpus(-pool.shared_left_millicpu)} short`, "never") : `${cpus(pool.shared_left_millicpu)}${isolated}`;
}

/** @param {any} step */
function hintRow(step) {
  return [step.container ?? "the pod", h("code", {}, step.resource), amount(step.resource, step.wanted), offers(step)];
}

/** @param {any} step */
function offers(step) {
  if (step.opinion === "none") return "any";
  if (step.opinion === "impossible") return tag("none has enough", "never");
  const left = step.hints.length - SHOWN_HINTS + step.hints_left_out;
  return h("span", { class: "hints" },
    step.hints.slice(0, SHOWN_HINTS).map((/** @type {any} */ hint) =>
      h("code", { class: hint.preferred ? "preferred" : "", title: hint.preferred ? "preferred: as few as the hardware allows" : "possible, not preferred" },
        hint.numa.join("+"), hint.preferred ? "★" : "")),
    left > 0 ? ` and ${left} more` : "");
}

/** Bytes as people say them. @param {string} text */
function readable(text) {
  return text.replaceAll(/\b(\d{4,}) bytes/g, (_, count) => bytes(Number(count)));
}

/** @param {any} step */
function otherStep(step) {
  const subject = step.container ?? "the pod";
  if (step.step === "allocation") return h("li", {}, tag("takes"), `${subject}: ${readable(step.taken)}`);
  const [word, kind] = step.admitted ? /** @type {const} */ (["chooses", "yes"]) : /** @type {const} */ (["refuses", "never"]);
  const what = step.admitted ? `${numaNames(step.affinity)}${step.preferred ? "" : ", not preferred"}: ` : "";
  return h("li", {}, tag(word, kind), `${subject}: ${step.policy}, ${what}${step.why}`);
}

/** @param {any} verdict of an admitted pod */
function asWhat(verdict) {
  return ADMITTED[/** @type {keyof typeof ADMITTED} */ (verdict.alignment)];
}

/**
 * Requests close by that would be admitted.
 * @param {any[]} nearest
 * @param {{node: string, manifest: string, draw: (verdict: any) => void}} place `draw`: draws a verdict on the map
 */
export function nearestRequests(nearest, { node, manifest, draw }) {
  if (!nearest.length) return null;
  const changed = h("div", { class: "changed", "aria-live": "polite" });
  const show = async (/** @type {any} */ each) => {
    draw(each.verdict);
    fill(changed, await changedManifest(each, node, manifest));
  };
  return h("div", { class: "nearest" }, h("h4", {}, "It would be admitted here with"),
    h("ul", { class: "nearest" }, nearest.map((each) => h("li", { class: asWhat(each.verdict) }, icon(asWhat(each.verdict)),
      h("span", {}, each.change, each.verdict.alignment === "aligned" ? null : ` (${KINDS[asWhat(each.verdict)]})`),
      h("button", { type: "button", class: "quiet small", onclick: () => show(each) }, "Show on the map")))),
    changed);
}

/**
 * The manifest with the change, after the node has admitted it; else what to change by hand.
 * @param {any} suggestion @param {string} node @param {string} manifest
 */
async function changedManifest(suggestion, node, manifest) {
  if (suggestion.container === null) return h("p", { class: "hint" }, `A change of the node's kubelet configuration: ${suggestion.change}.`);
  const text = withChanges(manifest, suggestion.container, changesOf(suggestion));
  const byHand = h("p", { class: "hint" }, `Change it in your manifest: ${suggestion.change}.`);
  if (text === null) return byHand;
  try {
    const reply = await ask("/v1/what-if", "pod", text, { nodes: [node] });
    if (!reply.nodes[0].verdict?.admit) return byHand;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return byHand;
  }
  const copied = h("span", { role: "status" });
  const copy = async () => {
    await navigator.clipboard.writeText(text).then(() => fill(copied, "copied"), () => fill(copied, "the browser does not allow it"));
  };
  return h("div", { class: "card" }, h("h4", {}, "The changed manifest"),
    h("ul", { class: "diff" }, differences(manifest, text).flatMap(({ before, after }) => [
      h("li", {}, h("del", {}, before)), h("li", {}, h("ins", {}, after))])),
    h("div", { class: "row" },
      h("button", { type: "button", onclick: () => askAbout(text) }, "Ask about it"),
      navigator.clipboard ? h("button", { type: "button", onclick: copy }, "Copy it") : null, copied));
}

/**
 * A form that asks about a copy of the node with other settings.
 * @param {any} node a NodeDetail
 * @param {string} manifest
 * @param {(verdict: any) => void} show draws a verdict on the map
 */
export function tryChanges(node, manifest, show) {
  const policy = choice("Topology policy", POLICIES, node.topology_policy);
  const scope = choice("Scope", SCOPES, node.topology_scope);
  const empty = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" }));
  const result = h("div", { "aria-live": "polite" });
  const tryIt = async (/** @type {Event} */ event) => {
    event.preventDefault();
    const changes = {
      copy_of: node.name, empty: empty.checked,
      kubelet: { topologyManagerPolicy: policy.select.value, topologyManagerScope: scope.select.value },
    };
    try {
      const reply = await ask("/v1/what-if", "pod", manifest, { nodes: [], hypothetical: [changes], explain: true });
      const [answer] = reply.nodes;
      const { kind } = answerOf(answer);
      const setting = `${policy.select.value} / ${scope.select.value}${empty.checked ? ", emptied" : ""}`;
      fill(result, h("div", { class: `card ${kind}` }, h("p", { class: "hint" }, `On a copy of ${node.name} with ${setting}:`), verdictParts(answer)));
      if (answer.verdict?.admit && !empty.checked) show(answer.verdict);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      fill(result, h("p", { class: "error" }, error.message));
    }
  };
  return h("details", {},
    h("summary", {}, "Try the node with other settings"),
    h("form", { class: "tries", onsubmit: tryIt },
      policy.label, scope.label, h("label", { class: "check" }, empty, "without its pods"),
      h("button", { type: "submit" }, "Try")),
    h("p", { class: "hint" }, "This uses a copy: the node itself does not change."),
    result);
}

/** @param {string} title @param {string[]} options @param {string} value */
function choice(title, options, value) {
  const select = /** @type {HTMLSelectElement} */ (h("select", {}, options.map((each) => h("option", { value: each }, each))));
  select.value = value;
  return { select, label: h("label", {}, title, select) };
}
