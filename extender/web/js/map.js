// The map of one node: sockets, NUMA nodes, cores and CPUs by pod, memory bars, and a box for each device.
import { otherCpus } from "./cluster.js";
import { h } from "./dom.js";
import { look, slotsOf } from "./palette.js";
import { bytes, parseList, plural, shortResource } from "./units.js";

/**
 * What a pod would get: CPU ids, device ids by resource, bytes by NUMA node and type.
 * @typedef {{cpus: Set<number>, devices: Map<string, Set<string>>, memory: Map<string, number>}} Placed
 */

/** @param {any} verdict @returns {Placed | null} */
export function placedOf(verdict) {
  if (!verdict?.admit) return null;
  /** @type {Placed} */
  const placed = { cpus: new Set(), devices: new Map(), memory: new Map() };
  for (const placement of /** @type {any[]} */ (Object.values(verdict.containers))) {
    for (const cpu of parseList(placement.cpus)) placed.cpus.add(cpu);
    for (const [resource, ids] of Object.entries(placement.devices)) {
      placed.devices.set(resource, new Set([...(placed.devices.get(resource) ?? []), .../** @type {string[]} */ (ids)]));
    }
    for (const block of placement.memory) {
      for (const numa of block.numa) {
        const key = `${numa} ${block.type}`;
        placed.memory.set(key, (placed.memory.get(key) ?? 0) + block.size / block.numa.length);
      }
    }
  }
  return placed;
}

/** A holder as people name it. @param {any} holder */
export function podName(holder) {
  return holder.pod ? `${holder.namespace}/${holder.pod}` : holder.pod_uid;
}

/**
 * @param {any} node a NodeDetail
 * @param {Placed | null} placed
 */
export function nodeMap(node, placed) {
  const slots = slotsOf(node.holders.map((/** @type {any} */ holder) => holder.pod_uid));
  const drawing = { node, placed, slots, holderOf: holdersByCpu(node), reserved: new Set(parseList(node.reserved_cpus)) };
  const numaOf = new Map(node.topology.map((/** @type {any} */ numa) => [numa.id, numa]));
  const inSockets = new Set(node.sockets.flatMap((/** @type {any} */ socket) => socket.numa));
  const groups = node.sockets.map((/** @type {any} */ socket) => ({ title: `Socket ${socket.id}`, ids: socket.numa }));
  const bare = node.topology.map((/** @type {any} */ numa) => numa.id).filter((/** @type {number} */ id) => !inSockets.has(id));
  if (bare.length) groups.push({ title: "No CPUs", ids: bare });
  return h("figure", { class: "map", id: "map" },
    h("figcaption", { class: "sr" }, `Map of ${node.name}. The tables below say the same.`),
    h("div", { class: "sockets" }, groups.map((/** @type {any} */ group) =>
      h("div", { class: "socket" }, h("h3", {}, group.title),
        h("div", { class: "numas" }, group.ids.map((/** @type {number} */ id) => numaBlock(numaOf.get(id), drawing)))))),
    unplacedDevices(drawing),
    legend(node, placed));
}

/** @param {any} node @returns {Map<number, any>} */
function holdersByCpu(node) {
  const holders = new Map();
  for (const holder of node.holders) for (const cpu of parseList(holder.cpus)) holders.set(cpu, holder);
  return holders;
}

/** @param {any} numa @param {any} drawing */
function numaBlock(numa, drawing) {
  const { node, placed } = drawing;
  const count = numa.cores.flat().filter((/** @type {number} */ cpu) => placed?.cpus.has(cpu)).length;
  const free = parseList(numa.free_cpus).length;
  const cpus = numa.cores.flat().length;
  const others = otherCpus(node);
  const text = others === "free" ? `${free} of ${plural(cpus, "CPU")} free` : `${plural(cpus, "CPU")}, ${others === "shared" ? others : "free ones unknown"}`;
  return h("div", { class: count ? "numa placed" : "numa" },
    h("h4", {}, `NUMA ${numa.id}`, h("span", {}, count ? [h("strong", {}, `${count} for the pod`), ` of ${free} free`] : text)),
    numa.l3_caches.length ? h("p", { class: "caches" }, cacheText(numa.l3_caches)) : null,
    h("div", { class: "cores", "aria-hidden": "true" }, byCache(numa).map((cores) => h("div", { class: "cache" },
      cores.map((core) => h("div", { class: "core" }, core.map((id) => cpuCell(id, drawing))))))),
    Object.entries(numa.memory).map(([type, view]) => memoryBar(numa, type, view, drawing)),
    Object.keys(numa.memory).length ? null
      : h("p", { class: "bar" }, `${bytes(numa.memory_bytes)} memory, ${node.hidden.includes("memory") ? "what is free is unknown" : "not pinned by this kubelet"}`),
    devicesOf(drawing, (device) => device.numa?.includes(numa.id) ?? false));
}

/** @param {string[]} caches CPUs of each, as Linux lists */
function cacheText(caches) {
  const sizes = [...new Set(caches.map((cpus) => parseList(cpus).length))];
  const of = sizes.length === 1 ? `, ${plural(sizes[0], "CPU")} each` : "";
  return caches.length === 1 ? `1 L3 cache for ${plural(sizes[0], "CPU")}` : `${caches.length} L3 caches${of}`;
}

/** The cores of a NUMA node, those that share an L3 cache together. @param {any} numa @returns {number[][][]} */
function byCache({ cores, l3_caches: caches }) {
  const cacheOf = new Map(caches.flatMap((/** @type {string} */ cpus, /** @type {number} */ i) => parseList(cpus).map((cpu) => [cpu, i])));
  /** @type {Map<number | undefined, number[][]>} */
  const groups = new Map();
  for (const core of cores) groups.set(cacheOf.get(core[0]), [...groups.get(cacheOf.get(core[0])) ?? [], core]);
  return [...groups.values()];
}

/** @param {number} id @param {any} drawing */
function cpuCell(id, { node, placed, slots, holderOf, reserved }) {
  if (placed?.cpus.has(id)) return h("i", { class: "cpu placed-here", title: `CPU ${id}: for the pod` }, id);
  const holder = holderOf.get(id);
  if (holder) {
    const { class: looks, vars } = look(slots.get(holder.pod_uid));
    return h("i", { class: `cpu ${looks}`, vars, data: { uid: holder.pod_uid }, title: `CPU ${id}: ${podName(holder)}` }, id);
  }
  if (reserved.has(id)) return h("i", { class: "cpu reserved", title: `CPU ${id}: reserved for the system` }, id);
  const others = otherCpus(node);
  return h("i", { class: others === "free" ? "cpu free" : "cpu shared", title: `CPU ${id}: ${others}` }, id);
}

/**
 * Who holds the memory: reserved first, then pod by pod, what is free last.
 * @param {any} numa @param {string} type @param {any} view @param {any} drawing
 */
function memoryBar(numa, type, view, { node, placed, slots }) {
  if (!view.total) return null;
  const part = (/** @type {number} */ size, /** @type {Record<string, unknown>} */ { vars, ...props }) =>
    size > 0 ? h("i", { ...props, vars: { ...Object(vars), width: `${(100 * size) / view.total}%` } }) : null;
  const held = heldMemory(node, numa.id, type);
  const used = view.allocatable - view.free;
  const counted = held.reduce((sum, { size }) => sum + size, 0);
  return h("div", { class: "bar" },
    h("span", {}, h("span", {}, type === "memory" ? "Memory" : type),
      h("span", {}, `${bytes(view.free)} of ${bytes(view.allocatable)} free`)),
    h("div", { class: "track", "aria-hidden": "true" },
      part(view.total - view.allocatable, { class: "reserved" }),
      held.map(({ holder, size }) => part(size, {
        ...look(slots.get(holder.pod_uid)), data: { uid: holder.pod_uid }, title: `${bytes(size)}: ${podName(holder)}`,
      })),
      part(used - counted, { class: "used" }),
      part(Math.min(placed?.memory.get(`${numa.id} ${type}`) ?? 0, view.free), { class: "placed-here", title: "for the pod" })));
}

/** Memory that containers hold on one NUMA node. @param {any} node @param {number} id @param {string} type */
function heldMemory(node, id, type) {
  const held = [];
  for (const holder of node.holders) {
    for (const block of holder.memory) {
      // A block over several NUMA nodes is drawn in equal parts: the kubelet counts it for all of them together.
      if (block.type === type && block.numa.includes(id)) held.push({ holder, size: block.size / block.numa.length });
    }
  }
  return held;
}

/** @param {any} drawing @param {(device: any) => boolean} belongs */
export function devicesOf({ node, placed, slots }, belongs) {
  return Object.entries(node.device_list).map(([resource, devices]) => {
    const here = /** @type {any[]} */ (devices).filter(belongs);
    if (!here.length) return null;
    return h("div", { class: "boxes" },
      h("span", { title: resource }, shortResource(resource)),
      here.map((device) => deviceBox(device, placed?.devices.get(resource)?.has(device.id) ?? false, slots)));
  });
}

/** @param {any} device @param {boolean} isPlaced @param {Map<string, number>} slots */
function deviceBox(device, isPlaced, slots) {
  const say = (/** @type {string} */ what) => ({ title: `${device.id}: ${what}` });
  if (isPlaced) return h("i", { class: "device placed-here", ...say("for the pod") }, device.id);
  if (!device.healthy) return h("i", { class: "device broken", ...say("unhealthy") }, device.id);
  if (device.held_by === null) return h("i", { class: "device free", ...say("free") }, device.id);
  const { class: looks, vars } = look(slots.get(device.held_by) ?? 0);
  return h("i", { class: `device ${looks}`, vars, data: { uid: device.held_by }, ...say("held") }, device.id);
}

/** Devices whose plugin told no NUMA node. @param {any} drawing */
function unplacedDevices(drawing) {
  const boxes = devicesOf(drawing, (device) => !device.numa?.length).filter(Boolean);
  return boxes.length ? h("div", { class: "numa" }, h("p", { class: "hint" }, "Devices without a NUMA node"), boxes) : null;
}

/** @param {any} node @param {Placed | null} placed */
function legend(node, placed) {
  const entry = (/** @type {string} */ name, /** @type {string} */ text) =>
    h("li", {}, h("span", { class: `swatch ${name}` }), text);
  const others = { free: entry("free", "free, in the shared pool"), shared: entry("shared", "shared by all pods"), unknown: entry("shared", "free or held: unknown") };
  return h("ul", { class: "legend", "aria-label": "Legend" },
    placed ? entry("placed-here", "where the pod would be placed") : null,
    others[otherCpus(node)],
    node.reserved_cpus ? entry("reserved", "reserved for the system") : null,
    node.holders.length ? h("li", {}, h("span", { class: "swatch held", vars: { "--held": "var(--held-0)" } }),
      h("span", { class: "swatch held p1", vars: { "--held": "var(--held-1)" } }), "held by a pod, see the table") : null);
}
