// A grid of equal tiles, of which only the visible ones exist. Arrow keys, Home, End and the page keys move between them.
import { h } from "./dom.js";

const SPARE_ROWS = 2;
const MARGIN = 16; // on the right, equal to that of the tiles on the left

/** @template {{name: string}} Item */
export class Grid {
  /**
   * @param {HTMLElement} viewport what scrolls
   * @param {{label: string, height: number, minWidth: number, render: (item: Item) => HTMLElement}} options
   */
  constructor(viewport, { label, height, minWidth, render }) {
    this.viewport = viewport;
    this.height = height;
    this.minWidth = minWidth;
    this.render = render;
    /** @type {Item[]} */
    this.items = [];
    /** @type {Map<string, {row: HTMLElement, item: Item, version: number}>} */
    this.shown = new Map();
    this.version = 0;
    this.columns = 1;
    /** @type {string | null} */
    this.active = null;
    this.scheduled = false;
    /** A tile is pressed. A click does not count if its target is replaced before it ends. */
    this.pressed = false;
    this.list = h("ul", { class: "tiles", role: "list", "aria-label": label });
    viewport.replaceChildren(this.list);
    viewport.addEventListener("scroll", () => this.schedule(), { passive: true });
    viewport.addEventListener("keydown", (event) => this.onKey(event));
    this.list.addEventListener("focusin", (event) => this.onFocus(event));
    this.list.addEventListener("pointerdown", () => { this.pressed = true; });
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => this.release());
    new ResizeObserver(() => this.schedule()).observe(viewport);
  }

  /** @param {Item[]} items */
  show(items) {
    this.items = items;
    this.version++;
    if (!items.some((item) => item.name === this.active)) this.active = items[0]?.name ?? null;
    this.draw();
  }

  /** @param {string} name */
  reveal(name) {
    const index = this.items.findIndex((item) => item.name === name);
    if (index < 0) return;
    this.active = name;
    const top = Math.floor(index / this.columns) * this.height;
    const bottom = top + this.height;
    const { scrollTop, clientHeight } = this.viewport;
    if (top < scrollTop) this.viewport.scrollTop = top;
    else if (bottom > scrollTop + clientHeight) this.viewport.scrollTop = bottom - clientHeight;
    this.draw();
  }

  /** Give an item the keyboard's focus. @param {string} name */
  focus(name) {
    this.reveal(name);
    const shown = this.shown.get(name);
    if (shown) linkOf(shown.row).focus({ preventScroll: true });
  }

  /** Draw what changed while a tile was pressed, after the click. */
  release() {
    if (!this.pressed) return;
    this.pressed = false;
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  draw() {
    if (this.pressed) return;
    const { scrollTop, clientHeight, clientWidth, offsetWidth } = this.viewport;
    const gutter = offsetWidth - clientWidth; // 0 if scroll bars overlay the content
    const usable = clientWidth - Math.max(0, MARGIN - gutter);
    this.columns = Math.max(1, Math.floor(usable / this.minWidth));
    const rows = Math.ceil(this.items.length / this.columns);
    this.list.style.height = `${rows * this.height}px`;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - SPARE_ROWS) * this.columns;
    const last = Math.ceil((scrollTop + clientHeight) / this.height + SPARE_ROWS) * this.columns;
    const wanted = this.items.slice(first, last);
    const focused = this.viewport.contains(document.activeElement) ? this.active : null;
    const names = new Set(wanted.map((item) => item.name));
    for (const [name, { row }] of this.shown) {
      if (names.has(name) || name === focused) continue;
      row.remove();
      this.shown.delete(name);
    }
    wanted.forEach((item, i) => this.place(item, first + i, usable / this.columns));
    // If the active tile is not visible, a visible one is in the tab order.
    const entry = this.shown.get(this.active ?? "") ?? this.shown.get(wanted[0]?.name ?? "");
    if (entry) linkOf(entry.row).tabIndex = 0;
  }

  /** @param {Item} item @param {number} index @param {number} width */
  place(item, index, width) {
    let shown = this.shown.get(item.name);
    if (!shown) {
      shown = { row: h("li"), item, version: -1 };
      this.shown.set(item.name, shown);
      this.list.append(shown.row);
    }
    const { row } = shown;
    if (shown.version !== this.version) {
      const hadFocus = row.contains(document.activeElement);
      row.replaceChildren(this.render(item));
      shown.version = this.version;
      if (hadFocus) linkOf(row).focus({ preventScroll: true });
    }
    row.setAttribute("aria-setsize", String(this.items.length));
    row.setAttribute("aria-posinset", String(index + 1));
    row.style.width = `${width}px`;
    row.style.height = `${this.height}px`;
    row.style.transform = `translate(${(index % this.columns) * width}px, ${Math.floor(index / this.columns) * this.height}px)`;
    linkOf(row).tabIndex = item.name === this.active ? 0 : -1;
  }

  /** @param {FocusEvent} event */
  onFocus(event) {
    for (const [name, { row }] of this.shown) {
      const isActive = row.contains(/** @type {Node} */ (event.target));
      if (isActive) this.active = name;
      linkOf(row).tabIndex = isActive ? 0 : -1;
    }
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const page = Math.max(1, Math.floor(this.viewport.clientHeight / this.height)) * this.columns;
    /** @type {Record<string, number>} */
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns,
      PageDown: page, PageUp: -page, Home: -this.items.length, End: this.items.length,
    };
    const step = steps[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey || this.items.length === 0) return;
    event.preventDefault();
    const from = this.items.findIndex((item) => item.name === this.active);
    const to = Math.min(this.items.length - 1, Math.max(0, from + step));
    this.focus(this.items[to].name);
  }
}

/** @param {HTMLElement} row @returns {HTMLElement} */
function linkOf(row) {
  return /** @type {HTMLElement} */ (row.firstElementChild);
}
