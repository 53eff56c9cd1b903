// A small picture of a node: one block for each NUMA node, one square for each CPU, allocated ones filled, free ones outlined.
import { loadNode, otherCpus } from "./cluster.js";
import { hueOf, slotsOf } from "./palette.js";
import { treeOf, usage } from "./pools.js";
import { parseList } from "./units.js";

const AT_ONCE = 4;
const KEPT = 400;
const NUMA_GAP = 4;
const SOCKET_GAP = 9;

/**
 * The whole of a node seen lately, by node and report, and the canvases that wait for it.
 * @typedef {{detail: Promise<any>, canvases: Set<HTMLCanvasElement>}} Entry
 * @type {Map<string, Entry>}
 */
const entries = new Map();
/** @type {(() => void)[]} */
const waiting = [];
let running = 0;

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./cluster.js").NodeSummary} node
 * @param {import("./verdict.js").Answer | undefined} answer
 */
export async function drawMini(canvas, node, answer) {
  if (!canvas.isConnected) return; // replaced before it was visible
  const placed = new Set(answer?.cpus ?? []);
  paint(canvas, node, estimate(node), placed);
  const detail = await entryOf(canvas, node).detail;
  if (!detail || !canvas.isConnected) return;
  const root = treeOf(detail.pools);
  if (root) paintPools(canvas, root, placed);
  else paint(canvas, node, exact(detail), placed);
  canvas.dataset.drawn = "exact";
}

/** @param {HTMLCanvasElement} canvas @param {import("./cluster.js").NodeSummary} node @returns {Entry} */
function entryOf(canvas, node) {
  const key = `${node.name} ${node.report}`;
  const known = entries.get(key);
  if (known) {
    known.canvases.add(canvas);
    return known;
  }
  const canvases = new Set([canvas]);
  const entry = { canvases, detail: queued(() => load(key, node.name, canvases)) };
  entries.set(key, entry);
  const oldest = entries.keys().next().value;
  if (entries.size > KEPT && oldest !== undefined) entries.delete(oldest);
  return entry;
}

/** Null if nobody looks any more, or the node cannot be had: the tile keeps its estimate. @param {string} key @param {string} name @param {Set<HTMLCanvasElement>} canvases */
async function load(key, name, canvases) {
  const isSeen = [...canvases].some((canvas) => canvas.isConnected);
  const detail = isSeen ? await loadNode(name).catch(() => null) : null;
  canvases.clear();
  if (detail === null) entries.delete(key);
  return detail;
}

/** A few at once, in order. @template T @param {() => Promise<T>} work @returns {Promise<T>} */
async function queued(work) {
  if (running >= AT_ONCE) await new Promise((resolve) => { waiting.push(() => resolve(undefined)); });
  running++;
  try {
    return await work();
  } finally {
    running--;
    waiting.shift()?.();
  }
}

/** Drawn from counts, until the details of the node are loaded. @param {import("./cluster.js").NodeSummary} node */
function estimate(node) {
  return node.numa.map((numa) => Array.from({ length: numa.cpus }, (_, i) => {
    if (otherCpus(node) !== "free" && !node.resource_policy) return { cpu: -1, style: "shared" };
    const held = numa.cpus - numa.free_cpus - numa.reserved_cpus;
    return { cpu: -1, style: i < numa.reserved_cpus ? "reserved" : i < numa.reserved_cpus + held ? "some" : "free" };
  }));
}

/** @param {any} node a NodeDetail */
function exact(node) {
  const slots = slotsOf(node.holders.map((/** @type {any} */ holder) => holder.pod_uid));
  /** @type {Map<number, string>} */
  const style = new Map();
  for (const holder of node.holders) {
    for (const cpu of parseList(holder.cpus)) style.set(cpu, `--held-${hueOf(slots.get(holder.pod_uid) ?? 0)}`);
  }
  for (const cpu of parseList(node.reserved_cpus)) style.set(cpu, "reserved");
  const other = otherCpus(node) === "free" ? "free" : "shared";
  return node.topology.map((/** @type {any} */ numa) =>
    numa.cores.flat().map((/** @type {number} */ cpu) => ({ cpu, style: style.get(cpu) ?? other })));
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {import("./cluster.js").NodeSummary} node
 * @param {{cpu: number, style: string}[][]} blocks one a NUMA node
 * @param {Set<number>} placed CPUs where the pod would be placed
 */
function paint(canvas, node, blocks, placed) {
  const sized = sizedContext(canvas);
  if (!sized) return;
  const { context, width, height } = sized;
  const color = colors();
  const gaps = node.numa.map((numa, i) => gapBetween(node.numa[i - 1], numa));
  const total = blocks.reduce((sum, cells) => sum + Math.sqrt(cells.length), 0) || 1;
  const room = width - gaps.reduce((sum, gap) => sum + gap, 0);
  let x = 0;
  blocks.forEach((cells, i) => {
    x += gaps[i] ?? 0;
    const blockWidth = room * Math.sqrt(cells.length) / total;
    paintBlock(context, cells, { x, width: blockWidth, height }, placed, color);
    x += blockWidth;
  });
}

/** The context of a canvas that has the size it has on the page; null while it has none. @param {HTMLCanvasElement} canvas */
function sizedContext(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const context = canvas.getContext("2d");
  if (!context || !width || !height) return null;
  const scale = devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  context.scale(scale, scale);
  return { context, width, height };
}

/**
 * Pools as nested frames, the CPUs of each in squares: exclusive ones in the colour of their pod, shared ones filled as
 * far as they are in use.
 * @param {HTMLCanvasElement} canvas @param {import("./pools.js").Tree} root @param {Set<number>} placed
 */
function paintPools(canvas, root, placed) {
  const sized = sizedContext(canvas);
  if (!sized) return;
  const { context, width, height } = sized;
  const color = colors();
  const slots = slotsOf(holdersOf(root).map((holder) => holder.pod_uid));
  /** @type {Map<number, string>} */
  const held = new Map();
  for (const holder of holdersOf(root)) {
    for (const cpu of parseList(holder.cpus)) held.set(cpu, `--held-${hueOf(slots.get(holder.pod_uid) ?? 0)}`);
  }
  const weigh = (/** @type {import("./pools.js").Tree} */ tree) => Math.sqrt(1 + usage(tree.pool).total / 1000);
  const draw = (/** @type {import("./pools.js").Tree} */ tree, /** @type {{x: number, y: number, width: number, height: number}} */ area) => {
    if (!tree.inside.length) {
      paintBlock(context, poolCells(tree.pool, held), area, placed, color);
      return;
    }
    const gap = tree.inside.some((each) => each.inside.length) ? SOCKET_GAP / 2 : NUMA_GAP / 2;
    const total = tree.inside.reduce((sum, each) => sum + weigh(each), 0);
    const room = area.width - gap * (tree.inside.length - 1);
    let { x } = area;
    for (const each of tree.inside) {
      const part = (room * weigh(each)) / total;
      context.strokeStyle = color("--line-strong");
      context.lineWidth = 0.75;
      context.strokeRect(x + 0.5, area.y + 0.5, part - 1, area.height - 1);
      draw(each, { x: x + 2.5, y: area.y + 2.5, width: part - 5, height: area.height - 5 });
      x += part + gap;
    }
  };
  draw(root, { x: 0, y: 0, width, height });
}

/** @param {import("./pools.js").Tree} tree @returns {any[]} */
function holdersOf({ pool, inside }) {
  return [...pool.containers ?? [], ...inside.flatMap(holdersOf)];
}

/** One cell a CPU: what is exclusive and reserved, then as many as are shared and in use. @param {any} pool @param {Map<number, string>} held */
function poolCells(pool, held) {
  const use = usage(pool);
  const reserved = parseList(pool.reserved_cpus).map((cpu) => ({ cpu, style: "reserved" }));
  const exclusive = pool.exclusive_cpus === null ? Array.from({ length: pool.exclusive_count }, () => ({ cpu: -1, style: "some" }))
    : parseList(pool.exclusive_cpus).map((cpu) => ({ cpu, style: held.get(cpu) ?? "some" }));
  const shared = parseList(pool.shared_cpus);
  const taken = Math.round((use.used + use.wider) / 1000);
  const isolated = Math.max(0, use.total / 1000 - reserved.length - exclusive.length - shared.length);
  return [...reserved, ...exclusive, ...shared.map((cpu, i) => ({ cpu, style: i < taken ? "shared" : "free" })),
    ...Array.from({ length: isolated }, () => ({ cpu: -1, style: "free" }))];
}

/** @param {{socket: number | null} | undefined} before @param {{socket: number | null}} numa @returns {number} */
function gapBetween(before, numa) {
  if (!before) return 0;
  return before.socket === numa.socket ? NUMA_GAP : SOCKET_GAP;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{cpu: number, style: string}[]} cells
 * @param {{x: number, y?: number, width: number, height: number}} box
 * @param {Set<number>} placed
 * @param {(name: string) => string} color
 */
function paintBlock(context, cells, { x, y = 0, width, height }, placed, color) {
  const { rows, columns } = shapeOf(cells.length, width, height);
  const stepX = width / columns;
  const stepY = Math.min(height / rows, stepX * 1.6);
  const gap = Math.min(1, stepX / 4);
  cells.forEach(({ cpu, style }, i) => {
    // Column by column, so that the threads of a core are one above the other.
    const left = x + Math.floor(i / rows) * stepX;
    const top = y + (i % rows) * stepY;
    const [w, tall] = [stepX - gap, stepY - gap];
    if (placed.has(cpu)) fillCell(context, color("--accent"), left, top, w, tall);
    else if (style === "free") {
      context.strokeStyle = color("--line-strong");
      context.lineWidth = 0.75;
      context.strokeRect(left + 0.5, top + 0.5, w - 1, tall - 1);
    } else if (style === "shared") {
      fillCell(context, color("--line"), left, top, w, tall);
    } else if (style === "reserved") {
      fillCell(context, color("--line-strong"), left, top, w, tall);
    } else fillCell(context, color(style === "some" ? "--reserved" : style), left, top, w, tall);
  });
}

/** Rows and columns for almost square cells. The number of rows is even, so that threads stay together. */
function shapeOf(/** @type {number} */ cells, /** @type {number} */ width, /** @type {number} */ height) {
  let best = { rows: 1, columns: Math.max(1, cells), off: Infinity };
  for (let rows = 2; rows <= Math.max(2, height / 3); rows += 2) {
    const columns = Math.max(1, Math.ceil(cells / rows));
    const off = Math.abs(Math.log((width / columns) / (height / rows)));
    if (off < best.off) best = { rows, columns, off };
  }
  return best;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} color
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
function fillCell(context, color, x, y, width, height) {
  context.fillStyle = color;
  context.fillRect(x, y, width, height);
}

/** Colours of the theme that is on, by name of their custom property. @type {Map<string, string>} */
let resolved = new Map();
document.addEventListener("themechange", () => { resolved = new Map(); });

/** A canvas does not support light-dark(): a hidden element resolves it. */
function colors() {
  const probe = document.body;
  return (/** @type {string} */ name) => {
    let value = resolved.get(name);
    if (value === undefined) {
      const before = probe.style.caretColor;
      probe.style.caretColor = `var(${name})`;
      value = getComputedStyle(probe).caretColor;
      probe.style.caretColor = before;
      resolved.set(name, value);
    }
    return value;
  };
}
