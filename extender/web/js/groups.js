// How the map of the cluster groups nodes, and what one cell shows.
import { mostFree } from "./cluster.js";
import { plural } from "./units.js";
import { KINDS } from "./verdict.js";

/** @typedef {import("./cluster.js").NodeSummary} NodeSummary */
/** @typedef {Map<string, import("./verdict.js").Answer>} Answers */

const POOLS = "pool";

/** @type {Record<string, {label: string, of: (node: NodeSummary, answers: Answers) => string}>} */
const GROUPINGS = {
  [POOLS]: { label: "pool", of: (node) => node.pool ?? "no pool label" },
  type: { label: "instance type", of: (node) => node.instance_type ?? "no instance type label" },
  class: { label: "hardware and settings", of: hardware },
  answer: { label: "answer and reason", of: (node, answers) => reason(answers.get(node.name)) },
};

/** Groupings that can be chosen now, as values and texts. @param {Answers} answers @returns {string[][]} */
export function groupings(answers) {
  return Object.entries(GROUPINGS).filter(([key]) => key !== "answer" || answers.size).map(([key, { label }]) => [key, label]);
}

/**
 * The grouping in use: the chosen one, else the first one that the nodes have labels for.
 * @param {string} chosen empty: none
 * @param {NodeSummary[]} nodes
 * @param {Answers} answers
 */
export function groupingOf(chosen, nodes, answers) {
  if (groupings(answers).some(([key]) => key === chosen)) return chosen;
  if (nodes.some((node) => node.pool)) return POOLS;
  return nodes.some((node) => node.instance_type) ? "type" : "class";
}

/** The group of a node. @param {string} grouping @param {NodeSummary} node @param {Answers} answers */
export function groupOf(grouping, node, answers) {
  return GROUPINGS[grouping].of(node, answers);
}

/** @param {NodeSummary} node */
function hardware(node) {
  if (!node.cpus) return "hardware not known";
  const devices = Object.entries(node.devices).map(([resource, { total }]) => `${total} ${resource.slice(resource.lastIndexOf("/") + 1)}`);
  const policy = node.topology_policy === "none" ? "no topology policy" : `${node.topology_policy}/${node.topology_scope}`;
  const runtime = node.resource_policy ? [`NRI ${node.resource_policy}`] : [];
  return [`${plural(node.cpus, "CPU")} on ${node.numa.length} NUMA`, ...devices, policy, ...runtime].join(", ");
}

/** @param {import("./verdict.js").Answer | undefined} answer */
function reason(answer) {
  if (!answer) return "not used";
  return answer.why ? `${answer.label}: ${answer.why}` : answer.label;
}

/** Numbers of free CPUs on one NUMA node at which a cell is drawn one step fuller. */
export const STEPS = [1, 8, 16, 32];

/** Where the NRI policy's grants are not known, no number of free CPUs is. @param {NodeSummary} node */
function isUnknown(node) {
  return node.cpus === 0 || node.hidden.includes("cpu") || (node.resource_policy !== null && ["unknown", "degraded"].includes(node.certainty));
}

/** @param {NodeSummary} node */
function isShared(node) {
  return node.cpu_policy !== "static" && node.resource_policy === null;
}

/**
 * Class name of a cell: what the node answers to the pod; without a pod, how much aligned room it has.
 * @param {NodeSummary} node
 * @param {import("./verdict.js").Answer | undefined} answer
 * @param {boolean} asked whether a pod was asked about
 */
export function lookOf(node, answer, asked) {
  if (asked) return answer?.kind ?? "unasked";
  if (isUnknown(node)) return "unsure";
  if (isShared(node)) return "unmanaged";
  const most = mostFree(node);
  return `room-${STEPS.filter((step) => most >= step).length}`;
}

/** What a cell says in words. @param {NodeSummary} node @param {import("./verdict.js").Answer | undefined} answer @param {boolean} asked */
export function wordsOf(node, answer, asked) {
  if (asked) return reason(answer);
  if (isUnknown(node)) return "not known";
  if (isShared(node)) return "all CPUs shared";
  return `${plural(mostFree(node), "CPU")} free on one NUMA node`;
}

/** The entries of the legend: class name, text, and the filter that shows such nodes only. @param {boolean} asked */
export function legendOf(asked) {
  if (asked) return [...Object.entries(KINDS).map(([kind, text]) => ({ look: kind, text, filter: { verdict: kind, why: "" } })), { look: "unasked", text: "not used", filter: null }];
  const rooms = ["none", ...STEPS.map((step, i) => (STEPS[i + 1] ? `${step}–${STEPS[i + 1] - 1}` : `${step} or more`))];
  return [
    ...rooms.map((text, i) => ({ look: `room-${i}`, text, filter: i ? { free: String(STEPS[i - 1]) } : null })),
    { look: "unmanaged", text: "CPUs are shared", filter: null },
    { look: "unsure", text: "not known", filter: { state: "unknown" } },
  ];
}
