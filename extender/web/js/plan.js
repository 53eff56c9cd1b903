// A plan for several workloads: where each of their pods would go, one after another.
import { callLines } from "./api.js";
import { h, icon, table } from "./dom.js";
import { nodeAddress } from "./state.js";
import { number, numaNames, parseList, plural } from "./units.js";
import { ADMITTED, KINDS } from "./verdict.js";

const SHOWN = 200;
const EMPTY = /^(\s*#.*)?\s*$/;

/** Whether a text holds more than one workload: several YAML documents, a list of JSON or of Kubernetes. @param {string} text */
export function isBundle(text) {
  try {
    const document = JSON.parse(text);
    return Array.isArray(document) || Array.isArray(document?.items);
  } catch {
    const documents = text.split(/^---.*$/m).filter((part) => !part.split("\n").every((line) => EMPTY.test(line)));
    return documents.length > 1 || /^kind:\s*["']?\w*List["']?\s*$/m.test(text);
  }
}

/**
 * @typedef {object} Plan
 * @property {any[]} pods lines of the answer, a PlannedPod each
 * @property {any} summary a PlanSummary
 */

/** @param {string} text @param {boolean} allOrNothing @param {AbortSignal} signal @returns {Promise<Plan>} */
export async function askPlan(text, allOrNothing, signal) {
  const isJson = /^\s*[[{]/.test(text);
  const lines = await callLines(`/v1/plan${allOrNothing ? "?all_or_nothing=true" : ""}`, { method: "POST", body: text, type: `application/${isJson ? "json" : "yaml"}`, signal });
  const { summary } = lines.pop();
  return { pods: lines, summary };
}

/**
 * What the map shows of a plan: each node that gets pods, and all that they get there.
 * @param {Plan} plan
 * @returns {{answers: Map<string, import("./verdict.js").Answer>, placements: Map<string, any>}}
 */
export function placesOf({ pods }) {
  /** @type {Map<string, any[]>} */
  const byNode = new Map();
  for (const pod of pods) if (pod.node !== null) byNode.set(pod.node, [...byNode.get(pod.node) ?? [], pod]);
  const answers = new Map();
  const placements = new Map();
  for (const [node, placed] of byNode) {
    const kinds = placed.map(kindOf);
    const kind = kinds.find((each) => each !== "yes") ?? "yes";
    const containers = Object.fromEntries(placed.flatMap((pod) =>
      Object.entries(pod.containers).map(([name, each]) => [`${pod.name}/${name}`, each])));
    const cpus = Object.values(containers).flatMap((each) => parseList(each.cpus));
    answers.set(node, { kind, label: plural(placed.length, "pod"), why: "", cpus, score: null });
    placements.set(node, { admit: true, containers });
  }
  return { answers, placements };
}

/** @param {any} pod a PlannedPod that has a node @returns {import("./verdict.js").Answer["kind"]} */
function kindOf(pod) {
  return ADMITTED[/** @type {keyof typeof ADMITTED} */ (pod.alignment)] ?? "unsure";
}

/** @param {Plan} plan */
export function planHeadline({ summary }) {
  const { pods, placed, aligned, held_back: heldBack } = summary;
  if (heldBack) return { kind: /** @type {const} */ ("never"), text: `No pod is placed: only ${number(heldBack)} of ${plural(pods, "pod")} fit` };
  const kind = placed < pods ? "never" : aligned < pods ? "split" : "yes";
  const text = placed === pods ? `All ${plural(pods, "pod")} have a node` : `${number(placed)} of ${plural(pods, "pod")} have a node`;
  return { kind: /** @type {"yes" | "split" | "never"} */ (kind), text: aligned === placed ? `${text}, aligned` : `${text}, ${number(aligned)} aligned` };
}

/** @param {Plan} plan @returns {Node[]} */
export function planParts({ pods, summary }) {
  const ordered = [...pods.filter((pod) => pod.node === null), ...pods.filter((pod) => pod.node !== null)];
  return [
    h("p", { class: "hint" }, "Placed one after another by the ranking of numa-extender. kube-scheduler also uses other scores, so it may choose other nodes."),
    table("Where each pod would go", ["Pod", "Node", "Gets"], ordered.slice(0, SHOWN).map(row)),
    ...(ordered.length > SHOWN ? [h("p", { class: "hint" }, `and ${plural(ordered.length - SHOWN, "more pod")}`)] : []),
    ...summary.notes.map((/** @type {string} */ note) => h("p", { class: "hint" }, `Note: ${note}.`)),
  ];
}

/** @param {any} pod a PlannedPod */
function row(pod) {
  if (pod.node === null) {
    const reasons = Object.entries(pod.reasons).map(([reason, nodes]) => `${plural(/** @type {number} */ (nodes), "node")}: ${reason}`);
    return [pod.name, h("span", { class: "never nowrap" }, icon("never"), " no node"), reasons.join("; ") || "It fits, but another pod does not."];
  }
  const kind = kindOf(pod);
  return [pod.name, h("a", { href: nodeAddress(pod.node) }, pod.node),
    h("span", { class: kind }, icon(kind), ` ${KINDS[kind]}`, pod.numa?.length ? `, ${numaNames(pod.numa)}` : "")];
}
