// One node in the grid: its name, a small map, its free resources, and its answer to the pod.
import { mostFree, otherCpus } from "./cluster.js";
import { h, icon, tag } from "./dom.js";
import { drawMini } from "./minimap.js";
import { bytes, cpus, plural, shortResource } from "./units.js";

const MIB = 1024 * 1024;
export const TILE = { height: 156, minWidth: 262 };

/** @type {Record<string, string>} */
const UNKNOWN = { degraded: "only amounts per NUMA node are known", unknown: "no usable report yet" };

/**
 * @param {import("./cluster.js").NodeSummary} node
 * @param {import("./verdict.js").Answer | undefined} answer
 * @param {{href: string, current: boolean}} options
 */
export function tile(node, answer, { href, current }) {
  const known = node.cpus > 0 || node.root_pool !== null;
  const canvas = h("canvas", { "aria-hidden": "true" });
  const element = h("a", { class: "tile", href, "aria-current": current ? "true" : null },
    h("span", { class: "tile-head" },
      h("span", { class: "tile-name", title: node.name }, node.name),
      h("span", { class: "tile-tags" },
        node.certainty === "exact" ? null : tag(node.certainty, node.certainty === "stale" ? "stale" : "unsure"),
        node.problems ? h("span", { class: "tag now", title: plural(node.problems, "problem") }, icon("warning"),
          node.problems, h("span", { class: "sr" }, node.problems === 1 ? " problem" : " problems")) : null,
        answer ? tag(answer.label, answer.kind) : null)),
    h("span", { class: "tile-config" }, known ? configuration(node) : UNKNOWN[node.certainty] ?? UNKNOWN.unknown),
    canvas,
    h("span", { class: "tile-foot" }, ...room(node)),
    known ? h("span", { class: "tile-foot" }, ...memoryAndDevices(node)) : null);
  if (known) requestAnimationFrame(() => drawMini(/** @type {HTMLCanvasElement} */ (canvas), node, answer));
  return element;
}

/** @param {import("./cluster.js").NodeSummary} node */
function configuration(node) {
  if (node.resource_policy) return [`NRI ${node.resource_policy}`, node.kubelet_version].filter(Boolean).join(" · ");
  const policy = node.topology_policy === "none" ? "no topology policy" : `${node.topology_policy} / ${node.topology_scope}`;
  return [policy, node.kubelet_version].filter(Boolean).join(" · ");
}

/** @param {import("./cluster.js").NodeSummary} node */
function room(node) {
  if (node.root_pool) {
    const [left, all] = node.root_pool;
    const parts = [h("span", {}, h("strong", {}, cpus(left, false)), ` of ${cpus(all)} left`)];
    if (node.numa.length > 1 && mostFree(node)) parts.push(h("span", {}, h("strong", {}, mostFree(node)), " on one NUMA node"));
    return parts;
  }
  if (node.resource_policy) return [h("span", {}, `${node.cpus} CPUs, grants unknown`)];
  if (node.cpus === 0) return [h("span", {}, "no map")];
  if (otherCpus(node) !== "free") return [h("span", {}, `${node.cpus} CPUs, ${otherCpus(node) === "shared" ? "all shared" : "free ones unknown"}`)];
  const parts = [h("span", {}, h("strong", {}, node.free_cpus), ` of ${node.cpus} CPUs free`)];
  if (node.numa.length > 1) parts.push(h("span", {}, h("strong", {}, mostFree(node)), " on one NUMA node"));
  return parts;
}

/** @param {import("./cluster.js").NodeSummary} node */
function memoryAndDevices(node) {
  const sum = (/** @type {(number | null)[]} */ amounts) => amounts.reduce((/** @type {number} */ total, amount) => total + (amount ?? 0), 0);
  const all = sum(node.numa.map((numa) => numa.memory_bytes));
  const isCounted = node.numa.some((numa) => numa.free_memory_bytes !== null);
  const free = sum(node.numa.map((numa) => numa.free_memory_bytes));
  const pool = node.root_pool?.slice(2).map((mib) => bytes(mib * MIB));
  const memory = pool ? [h("strong", {}, pool[0]), ` of ${pool[1]} left`] : isCounted ? [h("strong", {}, bytes(free)), ` of ${bytes(all)} free`] : [`${bytes(all)} memory`];
  return [h("span", {}, memory), ...Object.entries(node.devices).map(([resource, { total, free: left }]) =>
    h("span", { title: resource }, h("strong", {}, left), ` of ${total} ${shortResource(resource)} free`))];
}
