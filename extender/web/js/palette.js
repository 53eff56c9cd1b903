// The colour and pattern of a pod. They depend on its UID, so that they never change.

const HUES = 10;
const PATTERNS = 4;
const SLOTS = HUES * PATTERNS;

/** @param {string} text */
function hash(text) {
  let value = 2166136261;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return (value ^ (value >>> 15)) >>> 0;
}

/**
 * A slot for each pod of one node. Two pods whose hashes meet are told apart: the later one takes the next free slot.
 * @param {Iterable<string>} uids
 * @returns {Map<string, number>}
 */
export function slotsOf(uids) {
  const slots = new Map();
  const taken = new Set();
  for (const uid of [...new Set(uids)].sort()) {
    let slot = hash(uid) % SLOTS;
    for (let tries = 0; tries < SLOTS && taken.has(slot); tries++) slot = (slot + 7) % SLOTS;
    taken.add(slot);
    slots.set(uid, slot);
  }
  return slots;
}

/** Class names and variables of an element in this slot. @param {number} slot */
export function look(slot) {
  return { class: `held p${Math.floor(slot / HUES)}`, vars: { "--held": `var(--held-${slot % HUES})` } };
}

/** The hue of a slot, as an index of --held-N. @param {number} slot */
export function hueOf(slot) {
  return slot % HUES;
}
