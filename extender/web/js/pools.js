// The pools of the NRI topology-aware policy as nested boxes: what each has, what is used, and where a pod would go.
import { h, ranges } from "./dom.js";
import { devicesOf, placedOf, podName } from "./map.js";
import { look, slotsOf } from "./palette.js";
import { bytes, cpus, parseList, plural, shortIds } from "./units.js";

const SHOWN_CONTAINERS = 4;

/**
 * A pool of the API with the pools inside it. `own`: CPUs that no pool inside has; null if they are not known.
 * @typedef {{pool: any, inside: Tree[], own: number[] | null}} Tree
 */

/** @param {any[]} pools root first @returns {Tree | null} */
export function treeOf(pools) {
  /** @type {Map<string, Tree>} */
  const trees = new Map();
  let root = null;
  for (const pool of pools) {
    const tree = { pool, inside: [], own: pool.cpus === null ? null : parseList(pool.cpus) };
    trees.set(pool.name, tree);
    const parent = trees.get(pool.parent ?? "");
    if (!parent) root ??= tree;
    else {
      parent.inside.push(tree);
      const taken = new Set(tree.own);
      parent.own = parent.own?.filter((cpu) => !taken.has(cpu)) ?? null;
    }
  }
  return root;
}

/**
 * How the CPUs of a pool are used, in mCPU. `wider`: granted from a pool around it, so that it is not left here.
 * @param {any} pool
 */
export function usage(pool) {
  const reserved = 1000 * parseList(pool.reserved_cpus).length;
  const isolated = parseList(pool.isolated_cpus);
  const shared = 1000 * parseList(pool.shared_cpus).length;
  const left = Math.max(0, pool.free_millicpu) + 1000 * (pool.free_isolated ?? 0);
  const exclusive = 1000 * pool.exclusive_count;
  const total = pool.cpus === null ? pool.capacity_millicpu + 1000 * isolated.length : 1000 * parseList(pool.cpus).length;
  const used = pool.shared_used_millicpu ?? Math.max(0, shared - Math.max(0, pool.free_millicpu));
  const wider = Math.max(0, total - reserved - exclusive - used - left);
  return { total, reserved, exclusive, used, wider, left };
}

/** What a pod would get of a pool, as sentences. @param {any} pool @param {any} verdict @returns {string[]} */
function placedTexts(pool, verdict) {
  const placed = (verdict?.admit && verdict.nri) || [];
  return placed.filter((/** @type {any} */ each) => each.pool === pool.name).map((/** @type {any} */ each) => `${each.container}: ${grantText(each)}`);
}

/** The CPUs of a grant. @param {any} grant */
export function grantText({ cpus: exclusive, millicpu, shared_millicpu: portion = millicpu, cpu_type: type = "normal" }) {
  const parts = [];
  if (exclusive) parts.push(plural(parseList(exclusive).length, "CPU"));
  if (portion || !exclusive) parts.push(type === "preserve" ? "any CPUs" : `${cpus(portion)} ${type === "reserved" ? "reserved" : "shared"}`);
  return parts.join(" + ");
}

/**
 * @param {any} node a NodeDetail
 * @param {any} verdict of the pod in question; null: none
 */
export function poolMap(node, verdict) {
  const root = treeOf(node.pools);
  const holders = node.pools.flatMap((/** @type {any} */ pool) => pool.containers ?? []);
  const slots = slotsOf([...holders.map(uidOf), ...node.holders.map((/** @type {any} */ holder) => holder.pod_uid)]);
  /** @type {Map<number, any>} */
  const holderOf = new Map();
  for (const holder of holders) for (const cpu of parseList(holder.cpus)) holderOf.set(cpu, holder);
  const placedCpus = new Set((verdict?.admit ? verdict.nri ?? [] : []).flatMap((/** @type {any} */ each) => parseList(each.cpus)));
  const drawing = { node, root, verdict, placed: placedOf(verdict), slots, holderOf, placedCpus, cores: node.topology.flatMap((/** @type {any} */ numa) => numa.cores) };
  return h("figure", { class: "map pools", id: "map" },
    h("figcaption", { class: "sr" }, `Pools of ${node.name}. The tables below say the same.`),
    root ? box(root, null, drawing) : null,
    legend(node, placedCpus.size > 0));
}

/** @param {any} holder */
function uidOf(holder) {
  return holder.pod_uid || `${holder.namespace}/${holder.pod}`;
}

/** @param {Tree} tree @param {any} parent the pool around @param {any} drawing @returns {HTMLElement} */
function box(tree, parent, drawing) {
  const { pool, inside, own } = tree;
  const use = usage(pool);
  const texts = placedTexts(pool, drawing.verdict);
  const isolated = parseList(pool.isolated_cpus).length;
  return h("section", { class: `pool depth-${pool.depth % 2}${texts.length ? " placed" : ""}`, "aria-label": pool.name },
    h("header", {}, h(parent ? "h4" : "h3", {}, parent ? pool.name.replace(`${parent.name}/`, "") : pool.name),
      h("span", {}, h("strong", {}, cpus(use.left, false)), ` of ${cpus(use.total - use.reserved)} left`)),
    texts.map((text) => h("p", { class: "here" }, text)),
    pool.free_millicpu < 0 ? h("p", { class: "error" }, "No CPU is left to share: the policy refuses every further container.") : null,
    cpuBar(pool, use, drawing),
    isolated ? h("p", { class: "bar" }, `${pool.free_isolated ?? "unknown"} of ${plural(isolated, "isolated CPU")} free`) : null,
    memoryText(pool) === (parent && memoryText(parent)) ? null : memoryBar(pool, drawing),
    own === null || own.length ? cells(tree, drawing) : null,
    containers(pool, drawing),
    devicesOf(drawing, (device) => homeOf(device, drawing.root) === tree),
    inside.length ? h("div", { class: "inside", vars: { "--least": widthOf(inside[0]) } }, inside.map((each) => box(each, pool, drawing))) : null);
}

/** The least width of a pool's box. @param {Tree} tree */
function widthOf({ pool, inside }) {
  if (!inside.length) return pool.kind === "L3 cache" ? "7.5rem" : "12rem";
  if (inside.some((each) => each.inside.length)) return "32rem";
  return inside[0].pool.kind === "L3 cache" ? "17rem" : "13rem";
}

/** The smallest pool that has all NUMA nodes of a device; the root for a device without one. @param {any} device @param {Tree} tree @returns {Tree} */
function homeOf(device, tree) {
  const has = (/** @type {Tree} */ { pool }) => device.numa?.length
    && device.numa.every((/** @type {number} */ id) => pool.memory.some((/** @type {any} */ memory) => memory.numa.includes(id)));
  const inside = tree.inside.filter(has);
  return inside.length === 1 ? homeOf(device, inside[0]) : tree;
}

/** @param {any} pool @param {ReturnType<typeof usage>} use @param {any} drawing */
function cpuBar(pool, use, { slots }) {
  if (!use.total) return null;
  const part = (/** @type {number} */ size, /** @type {string} */ looks, /** @type {string} */ title, /** @type {object} */ vars = {}) =>
    size > 0 ? h("i", { class: looks, title: `${cpus(size)}: ${title}`, vars: { ...vars, width: `${(100 * size) / use.total}%` } }) : null;
  const own = (pool.containers ?? []).filter((/** @type {any} */ each) => each.cpus);
  const shown = own.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + 1000 * parseList(each.cpus).length, 0);
  return h("div", { class: "bar" },
    h("span", {}, h("span", {}, "CPU"), h("span", {}, used(use))),
    h("div", { class: "track", "aria-hidden": "true" },
      part(use.reserved, "reserved", "reserved"),
      own.map((/** @type {any} */ each) => {
        const { class: looks, vars } = look(slots.get(uidOf(each)) ?? 0);
        return part(1000 * parseList(each.cpus).length, looks, `exclusive to ${podName(each)}`, vars);
      }),
      part(use.exclusive - shown, "used", "exclusive to containers of other pools"),
      part(use.used, "shares", "shared by containers of this pool and those inside"),
      part(use.wider, "wider", "shared by containers of a wider pool")));
}

/** @param {ReturnType<typeof usage>} use */
function used(use) {
  const words = { exclusive: "exclusive", used: "shared", wider: "used by wider pools", reserved: "reserved" };
  const parts = Object.entries(words).map(([key, word]) => [use[/** @type {keyof typeof words} */ (key)], word]);
  return parts.filter(([size]) => size).map(([size, word]) => `${cpus(Number(size), false)} ${word}`).join(" · ") || "nothing used";
}

/** The memory of a pool by type: DRAM of NUMA 0–3. @param {any} pool */
function memoryText({ memory }) {
  const name = (/** @type {any} */ { type, numa }) => `${type || "Memory"} of NUMA ${shortIds(numa)}`;
  if (memory.length < 2) return memory.map(name).join("");
  return memory.slice(1).map((/** @type {any} */ each) => `${bytes(each.total_bytes)} ${name(each)}`).join(", ");
}

/** All memory of a pool together: what is booked may span types. @param {any} pool @param {any} drawing */
function memoryBar(pool, { verdict }) {
  const [memory] = pool.memory;
  if (!memory) return null;
  const [free, wider] = [memory.left_bytes, Math.max(0, memory.free_bytes - memory.left_bytes)];
  const here = ((verdict?.admit && verdict.nri) || []).filter((/** @type {any} */ each) => each.memory_numa.every((/** @type {number} */ id) => memory.numa.includes(id)));
  const placedBytes = Math.min(free, here.reduce((/** @type {number} */ sum, /** @type {any} */ each) => sum + each.memory_bytes, 0));
  const part = (/** @type {number} */ size, /** @type {string} */ looks, /** @type {string} */ title) =>
    size > 0 ? h("i", { class: looks, title: `${bytes(size)}: ${title}`, vars: { width: `${(100 * size) / memory.total_bytes}%` } }) : null;
  return h("div", { class: "bar" },
    h("span", {}, h("span", {}, memoryText(pool)), h("span", {}, `${bytes(free)} of ${bytes(memory.total_bytes)} left`)),
    h("div", { class: "track", "aria-hidden": "true" },
      part(memory.total_bytes - free - wider, "used", "booked"),
      part(wider, "wider", "booked over wider pools"),
      part(placedBytes, "placed-here", "for the pod")));
}

/** The CPUs of a pool that no pool inside has, core by core. @param {Tree} tree @param {any} drawing */
function cells({ pool, own }, { cores, holderOf, slots, placedCpus }) {
  if (own === null) return null;
  const mine = new Set(own);
  const [reserved, shared, isolated] = [pool.reserved_cpus, pool.shared_cpus, pool.isolated_cpus].map((list) => new Set(parseList(list)));
  const groups = cores.map((/** @type {number[]} */ core) => core.filter((cpu) => mine.has(cpu))).filter((/** @type {number[]} */ core) => core.length);
  const known = new Set(groups.flat());
  const cell = (/** @type {number} */ id) => {
    const holder = holderOf.get(id);
    if (placedCpus.has(id)) return h("i", { class: "cpu placed-here", title: `CPU ${id}: for the pod` }, id);
    if (holder) {
      const { class: looks, vars } = look(slots.get(uidOf(holder)) ?? 0);
      return h("i", { class: `cpu ${looks}`, vars, data: { uid: uidOf(holder) }, title: `CPU ${id}: ${podName(holder)}` }, id);
    }
    if (reserved.has(id)) return h("i", { class: "cpu reserved", title: `CPU ${id}: reserved` }, id);
    if (isolated.has(id)) return h("i", { class: "cpu free", title: `CPU ${id}: isolated, free` }, id);
    return h("i", { class: shared.has(id) ? "cpu free" : "cpu used", title: `CPU ${id}: ${shared.has(id) ? "shared" : "exclusive"}` }, id);
  };
  const rest = own.filter((cpu) => !known.has(cpu)).map((cpu) => [cpu]);
  return h("div", { class: "cache cores", "aria-hidden": "true" }, [...groups, ...rest].map((core) => h("div", { class: "core" }, core.map(cell))));
}

/** The containers that hold something at this pool. @param {any} pool @param {any} drawing */
function containers({ containers: all }, { slots }) {
  if (!all?.length) return null;
  const chips = all.map((/** @type {any} */ each) => {
    const { class: looks, vars } = look(slots.get(uidOf(each)) ?? 0);
    return h("li", { title: `${podName(each)} / ${each.container}` },
      h("span", { class: each.cpus ? `swatch ${looks}` : "swatch shares", vars, "aria-hidden": "true" }), `${each.pod} `,
      h("span", {}, grantText(each)));
  });
  const rest = chips.slice(SHOWN_CONTAINERS);
  return h("div", { class: "held-here" },
    h("ul", {}, chips.slice(0, SHOWN_CONTAINERS)),
    rest.length ? h("details", {}, h("summary", {}, `${plural(rest.length, "more container")}`), h("ul", {}, rest)) : null);
}

/** Who holds what, pool by pool, as a table's rows. @param {any} node @param {(uid: string | null) => void} light */
export function grantRows(node, light) {
  const held = node.pools.flatMap((/** @type {any} */ pool) => (pool.containers ?? []).map((/** @type {any} */ each) => ({ ...each, pool: pool.name })));
  const slots = slotsOf(held.map(uidOf));
  return held.map((/** @type {any} */ each) => {
    const { class: looks, vars } = look(slots.get(uidOf(each)) ?? 0);
    return [
      h("span", { class: "who", onmouseenter: () => light(uidOf(each)), onmouseleave: () => light(null) },
        h("span", { class: `swatch ${each.cpus ? looks : "shares"}`, vars, "aria-hidden": "true" }),
        h("span", { title: each.pod_uid }, `${podName(each)} / ${each.container}`)),
      each.pool,
      each.cpus ? [ranges(each.cpus), each.millicpu ? ` + ${cpus(each.millicpu)} shared` : null] : grantText(each),
      each.memory_numa.length ? `${bytes(each.memory_bytes)} on NUMA ${shortIds(each.memory_numa)}` : "not pinned",
    ];
  });
}

/** @param {any} node @param {boolean} isPlaced */
function legend(node, isPlaced) {
  const entry = (/** @type {string} */ name, /** @type {string} */ text) =>
    h("li", {}, h("span", { class: `swatch ${name}` }), text);
  const pools = node.pools.map(usage);
  const isMemoryWide = node.pools.some((/** @type {any} */ pool) => pool.memory.some((/** @type {any} */ each) => each.left_bytes < each.free_bytes));
  const any = (/** @type {"reserved" | "exclusive" | "wider"} */ key) => pools.some((/** @type {any} */ use) => use[key] > 0);
  return h("ul", { class: "legend", "aria-label": "Legend" },
    isPlaced ? entry("placed-here", "where the pod would be placed") : null,
    entry("shares", "shared CPU in use"),
    any("wider") || isMemoryWide ? entry("wider", "in use by containers of wider pools") : null,
    any("exclusive") ? entry("used", "exclusive CPUs, booked memory") : entry("used", "booked memory"),
    any("reserved") ? entry("reserved", "reserved") : null,
    entry("free", "CPU that containers share"));
}
