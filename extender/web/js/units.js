// Converts numbers and Linux lists to and from text.

const KIB = 1024;
const STEPS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/**
 * "0-3,8" as [0, 1, 2, 3, 8].
 * @param {string | null | undefined} text
 * @returns {number[]}
 */
export function parseList(text) {
  const ids = [];
  for (const part of (text ?? "").split(",")) {
    if (!part) continue;
    const [first, last] = part.split("-").map(Number);
    for (let id = first; id <= (last ?? first); id++) ids.push(id);
  }
  return ids;
}

/** @param {number} amount */
export function bytes(amount) {
  let value = amount;
  let step = 0;
  while (Math.abs(value) >= KIB && step < STEPS.length - 1) {
    value /= KIB;
    step++;
  }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${STEPS[step]}`;
}

/** An amount of a resource, in words. @param {string} resource @param {number} amount */
export function amount(resource, amount) {
  if (resource === "cpu") return plural(amount, "CPU");
  if (resource === "memory" || resource.startsWith("hugepages-")) return bytes(amount);
  return `${amount} × ${shortResource(resource)}`;
}

/** @param {number} count @param {string} noun */
export function plural(count, noun) {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** @param {number} value */
export function number(value) {
  return value.toLocaleString("en");
}

/** Thousandths of a CPU as people say them. @param {number} milli @param {boolean} [named] with the word */
export function cpus(milli, named = true) {
  const amount = String(Math.round(milli / 10) / 100);
  return named ? `${amount} CPU${milli === 1000 ? "" : "s"}` : amount;
}

/** NUMA ids in short: 0–3, 8. @param {number[]} ids ascending */
export function shortIds(ids) {
  /** @type {number[][]} */
  const runs = [];
  for (const id of ids) {
    const last = runs.at(-1);
    if (last && id === last[1] + 1) last[1] = id;
    else runs.push([id, id]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : last === first + 1 ? `${first}, ${last}` : `${first}–${last}`)).join(", ");
}

/** @param {number} seconds */
export function ago(seconds) {
  if (seconds < 2) return "just now";
  if (seconds < 120) return `${Math.round(seconds)} s ago`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86_400)} days ago`;
}

/** vendor.example/gpu as gpu. @param {string} resource */
export function shortResource(resource) {
  return resource.slice(resource.lastIndexOf("/") + 1);
}

/** NUMA ids as people name them. @param {number[] | null} ids */
export function numaNames(ids) {
  if (ids === null) return "any NUMA node";
  return `NUMA ${ids.join(" + ")}`;
}
