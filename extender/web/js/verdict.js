// The answer of a node for the pod, as text.
import { h, icon, ranges, table, tag } from "./dom.js";
import { amount, bytes, cpus, numaNames, parseList, plural, shortIds } from "./units.js";

/**
 * @typedef {object} Answer
 * @property {"yes" | "split" | "unmanaged" | "now" | "never" | "unsure"} kind
 * @property {string} label one or two words
 * @property {string} why the reason that the scheduler shows; empty if the node admits the pod
 * @property {number | null} score of the service's ranking, for the order only: it is relative to the other nodes
 * @property {number[]} cpus where the pod's containers would run, those with CPUs of their own
 */

/** @type {Record<Answer["kind"], string>} */
export const KINDS = {
  yes: "aligned",
  split: "split",
  unmanaged: "not managed",
  now: "not now",
  never: "never",
  unsure: "unsure",
};

/** @param {any} node a NodeAnswer @returns {Answer} */
export function answerOf(node) {
  const kind = kindOf(node);
  const containers = Object.values(node.verdict?.containers ?? {});
  const cpus = containers.flatMap((/** @type {any} */ placement) => parseList(placement.cpus));
  return { kind, label: KINDS[kind], why: whyOf(node, kind), score: node.score, cpus };
}

/** The kinds of admission. Only "yes" is shown in green. */
export const ADMITTED = /** @type {const} */ ({ "aligned": "yes", "split": "split", "not-managed": "unmanaged" });

/** Whether the node admits the pod, aligned or not. @param {Answer["kind"]} kind */
export function isAdmitted(kind) {
  return kind === "yes" || kind === "split" || kind === "unmanaged";
}

/** The reasons for a node whose kubelet would admit the pod against the alignment that the pod demands. */
const DEMAND = /^the pod(?: demands|'s demand)/;

/** @param {any} node @returns {Answer["kind"]} */
function kindOf(node) {
  if (node.outcome === "fits") return ADMITTED[/** @type {keyof typeof ADMITTED} */ (node.alignment)];
  if (node.verdict === null && node.certainty === "degraded" && !node.passes) return "now"; // counts prove it
  if (node.outcome === "unknown" || node.verdict === null) return "unsure";
  if (node.outcome === "scheduler") return "now";
  if (DEMAND.test(node.why)) return "now";
  if (node.verdict.admit || node.verdict.certainty === "possible") return "unsure";
  return node.never ? "never" : "now";
}

/** @param {any} node @param {Answer["kind"]} kind @returns {string} */
function whyOf(node, kind) {
  if (isAdmitted(kind)) return "";
  if (node.outcome === "unknown") return node.why || "too little is known of the node";
  if (node.why) return node.why;
  const failing = failed(node)[0];
  return failing ? `kube-scheduler: ${CHECKS[failing.check] ?? failing.check}` : "not offered";
}

/** @type {Record<string, string>} */
const CHECKS = {
  "resources": "the totals are too small",
  "node-name": "the pod names another node",
  "node-selector": "the node selector does not match",
  "node-affinity": "the node affinity does not match",
  "taints": "a taint is not tolerated",
  "unschedulable": "the node is cordoned",
  "other": "other rules",
};

/** @param {any} node */
function failed(node) {
  return node.scheduler.checks.filter((/** @type {any} */ check) => check.outcome === "fails");
}

/** @type {Record<Answer["kind"], string>} */
export const TITLES = {
  yes: "The pod would be aligned here",
  split: "The pod would be admitted, but split over NUMA nodes",
  unmanaged: "The pod would be admitted, and no manager places it",
  now: "The pod does not fit now",
  never: "The pod can never fit here",
  unsure: "It is not certain whether the pod would be admitted",
};

/**
 * The heart of the card: what would happen, and why.
 * @param {any} node a NodeAnswer
 * @returns {Node[]}
 */
export function verdictParts(node) {
  const { kind, why } = answerOf(node);
  const { verdict } = node;
  const parts = [h("h3", { class: kind }, icon(kind), TITLES[kind])];
  if (kind === "split") parts.push(h("p", {}, splitSentence(node.verdict)));
  if (!isAdmitted(kind)) parts.push(h("p", {}, node.reason || sentence(why, verdict?.refused_by)));
  if (verdict?.pod_cpus) parts.push(h("p", {}, "The pod as a whole gets CPUs ", ranges(verdict.pod_cpus), ", which its containers share."));
  if (verdict?.admit && node.outcome !== "unknown") parts.push(verdict.nri.length ? poolPlacements(verdict) : placements(verdict));
  if (verdict?.admit && !verdict.alignment_certain) parts.push(h("p", { class: "hint" }, "The kubelet chooses at random: other placements are possible."));
  if (verdict && !verdict.admit) {
    const isPolicy = verdict.refused_by?.provider === "nri";
    parts.push(h("p", { class: "kubelet-says" },
      isPolicy ? "The pod would be bound, and its container would stay in " : "The kubelet would fail the pod with ",
      h("code", {}, isPolicy ? "CreateContainerError" : verdict.reason), verdict.message ? `: “${verdict.message}”` : ""));
  }
  for (const check of failed(node)) {
    parts.push(h("p", {}, tag("kube-scheduler", "now"), " ", check.detail || CHECKS[check.check]));
  }
  for (const note of node.notes) parts.push(h("p", { class: "hint" }, `Note: ${note}.`));
  if (node.certainty !== "exact") parts.push(h("p", { class: "hint" }, CERTAINTIES[node.certainty] ?? ""));
  return parts;
}

/** @type {Record<string, string>} */
const CERTAINTIES = {
  assumed: "The kubelet is newer than the newest known version. The answer uses the rules of that version.",
  possible: "The kubelet picks some devices at random, and the result depends on that.",
  degraded: "Only published amounts are known: they can prove a refusal, and not that the pod fits.",
  stale: "The node has not reported for some time. The answer uses its last report.",
  unknown: "There is no usable report of the node.",
};

/** @param {any} verdict of a pod that is split */
function splitSentence(verdict) {
  const may = verdict.alignment_certain ? "are" : "can be";
  return `Its resources ${may} on ${numaNames(verdict.numa)}.`;
}

/** @param {string} why @param {any} by */
function sentence(why, by) {
  const start = `${why.charAt(0).toUpperCase()}${why.slice(1)}`;
  if (!by || by.wanted === null || by.had === null) return `${start}.`;
  return `${start}: ${amount(by.resource, by.wanted)} wanted, ${amount(by.resource, by.had)} there.`;
}

/** @param {any} verdict an admitted one */
export function placements(verdict) {
  const rows = Object.entries(verdict.containers).map(([name, each]) => placementRow(name, each));
  return table("Where each container is placed", ["Container", "CPUs", "NUMA", "Memory", "Devices"], rows);
}

/** Where the NRI policy puts the containers. @param {any} verdict an admitted one */
function poolPlacements(verdict) {
  return table("Where each container is placed", ["Container", "Pool", "CPUs", "Memory", "Devices"], verdict.nri.map((/** @type {any} */ each) => [
    each.container,
    each.pool,
    [each.cpus ? ranges(each.cpus) : null, each.cpus && each.shared_millicpu ? " + " : null,
      each.shared_millicpu || !each.cpus ? `${cpus(each.shared_millicpu)} shared` : null,
      each.cpuset === each.cpus ? null : each.cpuset === null ? ", not pinned" : [", runs on ", ranges(each.cpuset)]],
    [`${bytes(each.memory_bytes)} on NUMA ${shortIds(each.memory_numa)}`, each.widens ? `, moves memory of ${plural(each.widens, "container")}` : null],
    Object.values(verdict.containers[each.container]?.devices ?? {}).flat().join(", ") || "none",
  ]));
}

/** @param {string} name @param {any} placement */
function placementRow(name, placement) {
  const memory = placement.memory.map((/** @type {any} */ block) =>
    h("div", {}, `${bytes(block.size)}${block.type === "memory" ? "" : ` ${block.type}`} on ${numaNames(block.numa)}`));
  const devices = Object.entries(placement.devices).map(([resource, ids]) =>
    h("div", {}, h("span", { title: resource }, /** @type {string[]} */ (ids).join(", ")),
      placement.random.includes(resource) ? " (one of several picks)" : null));
  return [
    name,
    placement.cpus ? ranges(placement.cpus) : "shared pool",
    [placement.numa.length ? placement.numa.join(", ") : "any", placement.alignment === "split" ? ", split" : null],
    memory.length ? memory : "anywhere",
    devices.length ? devices : "none",
  ];
}
