// All nodes, kept up to date, and the filters.
import { call } from "./api.js";

/**
 * One node, as the map of the API describes it.
 * @typedef {object} NodeSummary
 * @property {string} name
 * @property {"exact" | "assumed" | "stale" | "unknown" | "degraded" | "possible"} certainty
 * @property {number} report changes with every report of the node
 * @property {string | null} pool
 * @property {string | null} instance_type
 * @property {string | null} kubelet_version
 * @property {string | null} topology_policy
 * @property {string | null} topology_scope
 * @property {string | null} cpu_policy
 * @property {string | null} memory_policy
 * @property {string | null} resource_policy
 * @property {[number, number, number, number] | null} root_pool of the NRI policy: CPU left and all, in mCPU, memory left and all, in MiB
 * @property {string[]} hidden managers whose state is unknown
 * @property {number} cpus
 * @property {number} free_cpus
 * @property {number} problems
 * @property {{id: number, socket: number | null, cpus: number, free_cpus: number, reserved_cpus: number,
 *   memory_bytes: number, free_memory_bytes: number | null}[]} numa
 * @property {Record<string, {total: number, free: number}>} devices
 */

const MIB = 1024 * 1024;

/** Every node, by name. @param {string} labels a selector of labels; empty: all @returns {Promise<NodeSummary[]>} */
export async function loadNodes(labels) {
  const nodes = [];
  let after = "";
  do {
    const query = new URLSearchParams({ ...(after && { after }), ...(labels && { label_selector: labels }) });
    const page = await call(`/v1/map${query.size ? `?${query}` : ""}`);
    const { shapes, nodes: columns, root_pools: roots } = page;
    for (let i = 0; i < columns.name.length; i++) nodes.push({ ...nodeOf(shapes[columns.shape[i]], columns, i), root_pool: roots[columns.name[i]] ?? null });
    after = page.next ?? "";
  } while (after);
  return nodes;
}

/** Row *i* of the columns, with the fields of its shape. @param {any} shape @param {any} columns @param {number} i @returns {Omit<NodeSummary, "root_pool">} */
function nodeOf({ numa, devices, ...settings }, columns, i) {
  const [cpus, memory, free] = [columns.free_cpus[i], columns.free_memory_mib[i], columns.free_devices[i]];
  const sum = (/** @type {number[]} */ amounts) => amounts.reduce((total, amount) => total + amount, 0);
  return {
    ...settings,
    name: columns.name[i], certainty: columns.certainty[i], problems: columns.problems[i], report: columns.report[i],
    cpus: sum(numa.map((/** @type {any} */ each) => each.cpus)),
    free_cpus: sum(cpus),
    numa: numa.map((/** @type {any} */ { memory_mib, ...each }, /** @type {number} */ k) => ({
      ...each, free_cpus: cpus[k], memory_bytes: memory_mib * MIB, free_memory_bytes: memory ? memory[k] * MIB : null,
    })),
    devices: Object.fromEntries(Object.entries(devices).map(([resource, total], k) => [resource, { total, free: free[k] }])),
  };
}

/** The values of a node of which too little is known. */
const NOTHING = {
  sockets: [], topology: [], zones: [], holders: [], problem_list: [], pod_list: null, device_list: {},
  pools: [], resource_policy: null, reserved_cpus: "", shared_cpus: "", cpu_options: {}, topology_options: {},
};

/** All details of one node. @param {string} name @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function loadNode(name, signal) {
  return { ...NOTHING, ...await call(`/v1/nodes/${encodeURIComponent(name)}`, { signal }) };
}

/** How certain the state of a node is, in words. @param {{certainty: string, hidden: string[]}} node */
export function certaintyOf({ certainty, hidden }) {
  return certainty === "exact" && hidden.length ? "partly unknown" : certainty;
}

/** What the CPUs are that are neither reserved nor held. @param {{cpu_policy: string | null, hidden: string[]}} node @returns {"free" | "shared" | "unknown"} */
export function otherCpus({ cpu_policy: policy, hidden }) {
  return hidden.includes("cpu") ? "unknown" : policy === "static" ? "free" : "shared";
}

/** The most CPUs free on one NUMA node. @param {NodeSummary} node */
export function mostFree(node) {
  return node.numa.reduce((most, numa) => Math.max(most, numa.free_cpus), 0);
}

/**
 * @typedef {object} Filters
 * @property {string} q words that must all be in the name, the pool or the instance type
 * @property {string} labels a selector of labels; the service applies it
 * @property {string} policy
 * @property {string} scope
 * @property {string} version a minor version, such as 1.34
 * @property {string} state a certainty, or "problems"
 * @property {string} free CPUs that one NUMA node must have free
 * @property {string} verdict outcome of the pod in question
 * @property {string} why the exact reason of the refusal
 * @property {string} group title of a group of the map, such as a pool
 * @property {string} sort
 * @property {string} by how the map groups nodes; empty: automatic
 * @property {string} show "map" or "tiles"; empty: automatic
 */

/** @type {Filters} */
export const NO_CHOICES = { q: "", labels: "", policy: "", scope: "", version: "", state: "", free: "", verdict: "", why: "", group: "", sort: "", by: "", show: "" };

/** What "Reset" changes: the filters and the order, not how nodes are shown. @type {Partial<Filters>} */
export const NO_FILTERS = Object.fromEntries(Object.entries(NO_CHOICES).filter(([key]) => key !== "by" && key !== "show"));

/** v1.34.9 as 1.34. @param {string | null} version */
export function minor(version) {
  return /^v?(\d+\.\d+)/.exec(version ?? "")?.[1] ?? "";
}

/**
 * @param {NodeSummary[]} nodes
 * @param {Filters} filters
 * @param {Map<string, import("./verdict.js").Answer>} answers for the pod in question, by node
 * @param {(node: NodeSummary) => string} groupOf
 * @param {Set<string>} wanted resources that the pod requests
 */
export function select(nodes, filters, answers, groupOf, wanted) {
  const words = filters.q.toLowerCase().split(/\s+/).filter(Boolean);
  const least = Number(filters.free) || 0;
  const chosen = nodes.filter((node) => {
    const answer = answers.get(node.name);
    const texts = [node.name, node.pool, node.instance_type].map((text) => text?.toLowerCase() ?? "");
    return words.every((word) => texts.some((text) => text.includes(word)))
      && (!filters.policy || node.topology_policy === filters.policy)
      && (!filters.scope || node.topology_scope === filters.scope)
      && (!filters.version || minor(node.kubelet_version) === filters.version)
      && (!filters.state || (filters.state === "problems" ? node.problems > 0 : node.certainty === filters.state))
      && (!least || mostFree(node) >= least)
      && (!filters.group || groupOf(node) === filters.group)
      && (!filters.verdict || answer?.kind === filters.verdict)
      && (!filters.why || answer?.why === filters.why);
  });
  return sort(chosen, filters.sort, answers, wanted);
}

/** @type {Record<string, number>} */
const RANK = { yes: 0, split: 1, unmanaged: 2, unsure: 3, now: 4, never: 5 };

/**
 * @param {NodeSummary[]} nodes
 * @param {string} order
 * @param {Map<string, import("./verdict.js").Answer>} answers
 * @param {Set<string>} wanted
 */
function sort(nodes, order, answers, wanted) {
  if (order === "free") return nodes.sort((a, b) => mostFree(b) - mostFree(a));
  if (order === "name" || answers.size === 0) return nodes;
  const rank = (/** @type {NodeSummary} */ node) => {
    const answer = answers.get(node.name);
    return answer ? RANK[answer.kind] : 10;
  };
  const score = (/** @type {NodeSummary} */ node) => answers.get(node.name)?.score ?? -1;
  // Nodes with devices that the pod does not use are usually reserved for others. Among equal nodes, kube-scheduler's
  // default prefers the one with the most free resources.
  const spare = (/** @type {NodeSummary} */ node) => Number(Object.keys(node.devices).some((resource) => !wanted.has(resource)));
  return nodes.sort((a, b) => rank(a) - rank(b) || score(b) - score(a) || spare(a) - spare(b) || b.free_cpus - a.free_cpus);
}
