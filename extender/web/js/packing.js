// The size of the cells of the map, and the column of each group.

const HEAD = 24; // px above the cells of a group
const GAP = 12; // px below a group
const GUTTER = 18; // px between two columns
const MARGIN = 16; // px left and right
const MIN_WIDTH = 170; // px of a column, for the heading
const LARGEST = 40;
const SMALLEST = 9;
const MAX_COLUMNS = 8;

/** @typedef {{groups: number[], cells: number}} Column indexes of the groups, and cells in a row */

/**
 * The largest cells with which all groups are on the screen; the smallest ones, and scrolling, if none are.
 * @param {number[]} sizes nodes of each group
 * @param {{width: number, height: number}} box
 * @returns {{pitch: number, columns: Column[]}}
 */
export function pack(sizes, { width, height }) {
  const usable = width - 2 * MARGIN;
  const most = Math.max(1, Math.min(MAX_COLUMNS, sizes.length, Math.floor((usable + GUTTER) / (MIN_WIDTH + GUTTER))));
  let shortest = { height: Infinity, columns: /** @type {Column[]} */ ([]) };
  for (let pitch = LARGEST; pitch >= SMALLEST; pitch--) {
    shortest = { height: Infinity, columns: [] };
    for (let count = 1; count <= most; count++) {
      const placed = place(sizes, { count, pitch, width: (usable - (count - 1) * GUTTER) / count });
      if (placed.height < shortest.height) shortest = placed;
    }
    if (shortest.height <= height) return { pitch, columns: shortest.columns };
  }
  return { pitch: SMALLEST, columns: shortest.columns };
}

/** Each group into the column that is shortest so far. @param {number[]} sizes @param {{count: number, pitch: number, width: number}} grid */
function place(sizes, { count, pitch, width }) {
  const cells = Math.max(1, Math.floor(width / pitch));
  const heights = Array.from({ length: count }, () => 0);
  /** @type {Column[]} */
  const columns = heights.map(() => ({ groups: [], cells }));
  sizes.forEach((size, i) => {
    const shortest = heights.indexOf(Math.min(...heights));
    columns[shortest].groups.push(i);
    heights[shortest] += HEAD + Math.ceil(size / cells) * pitch + GAP;
  });
  return { height: Math.max(0, ...heights), columns };
}
