// The map of the whole cluster: one small cell for each node, in groups. Arrow keys move inside a group, Enter opens the node.
import { h, fill } from "./dom.js";
import { groupOf, legendOf, lookOf, wordsOf } from "./groups.js";
import { pack } from "./packing.js";
import { tile } from "./tile.js";
import { number, plural } from "./units.js";

/** @typedef {import("./cluster.js").NodeSummary} NodeSummary */
/** @typedef {{title: string, nodes: NodeSummary[], list: HTMLElement, counts: HTMLElement, columns: number}} Group */
/** @typedef {{element: HTMLElement, node: NodeSummary, group: Group, index: number, look: string, words: string}} Cell */

const PEEK_DELAY_MS = 90;
const PEEK = { width: 290, height: 176, gap: 10 };
const PAGE_ROWS = 5;

export class ClusterMap {
  /**
   * @param {HTMLElement} viewport the element that scrolls if the cells do not fit
   * @param {HTMLElement} legend
   * @param {{open: (name: string) => void, zoom: (group: string) => void, filter: (filter: Record<string, string>) => void}} actions
   */
  constructor(viewport, legend, { open, zoom, filter }) {
    this.viewport = viewport;
    this.legend = legend;
    this.actions = { open, zoom, filter };
    /** @type {Group[]} */
    this.groups = [];
    /** @type {Map<string, Cell>} */
    this.cells = new Map();
    /** @type {Map<string, import("./verdict.js").Answer>} */
    this.answers = new Map();
    this.signature = "";
    this.board = h("div", { class: "board" });
    this.peek = h("div", { class: "peek", "aria-hidden": "true", hidden: true, inert: true });
    viewport.replaceChildren(this.board);
    document.body.append(this.peek); // it lies over the panes, which clip what is inside
    viewport.addEventListener("keydown", (event) => this.onKey(event));
    viewport.addEventListener("click", (event) => this.onClick(event));
    viewport.addEventListener("focusin", (event) => this.onFocus(event));
    viewport.addEventListener("focusout", () => this.hidePeek());
    viewport.addEventListener("pointerover", (event) => this.showPeek(this.cellAt(event.target)));
    viewport.addEventListener("pointerleave", () => this.hidePeek());
    new ResizeObserver(() => this.arrange()).observe(viewport);
  }

  /**
   * @param {NodeSummary[]} nodes
   * @param {{answers: Map<string, import("./verdict.js").Answer>, grouping: string, chosen: Set<string> | null}} shown
   *   `chosen`: names that match the filters; null: all
   */
  show(nodes, { answers, grouping, chosen }) {
    this.answers = answers;
    /** @type {Map<string, NodeSummary[]>} */
    const groups = new Map();
    for (const node of nodes) {
      const title = groupOf(grouping, node, answers);
      const members = groups.get(title);
      if (members) members.push(node);
      else groups.set(title, [node]);
    }
    const ordered = [...groups].sort((a, b) => b[1].length - a[1].length || a[0].localeCompare(b[0]));
    const signature = JSON.stringify(ordered.map(([title, members]) => [title, members.map((node) => node.name)]));
    if (signature !== this.signature) {
      this.signature = signature;
      this.build(ordered);
    }
    for (const node of nodes) this.paint(node, chosen);
    this.count(chosen);
    this.arrange();
  }

  /** @param {[string, NodeSummary[]][]} groups */
  build(groups) {
    this.hidePeek();
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.name : undefined;
    this.cells.clear();
    const blank = h("a", { role: "option", class: "cell", tabIndex: -1 });
    this.groups = groups.map(([title, nodes]) => {
      const list = h("div", { class: "cells", role: "listbox", "aria-label": `${title}: nodes` });
      /** @type {Group} */
      const group = { title, nodes, list, counts: h("span", { class: "group-counts" }), columns: 1 };
      nodes.forEach((node, index) => {
        const element = /** @type {HTMLElement} */ (blank.cloneNode());
        element.dataset.name = node.name;
        this.cells.set(node.name, { element, node, group, index, look: "", words: "" });
        list.append(element);
      });
      if (list.firstElementChild instanceof HTMLElement) list.firstElementChild.tabIndex = 0;
      return group;
    });
    if (focused) this.focus(focused);
  }

  /** @param {NodeSummary} node @param {Set<string> | null} chosen */
  paint(node, chosen) {
    const cell = this.cells.get(node.name);
    if (!cell) return;
    const answer = this.answers.get(node.name);
    const asked = this.answers.size > 0;
    cell.node = node;
    const kind = lookOf(node, answer, asked);
    const look = `cell ${kind}${chosen && !chosen.has(node.name) ? " off" : ""}`;
    const words = `${node.name}, ${wordsOf(node, answer, asked)}`;
    if (cell.look !== look) cell.element.className = cell.look = look;
    if (cell.words !== words) {
      cell.words = words;
      cell.element.setAttribute("aria-label", words);
    }
  }

  /** Number of cells by look, for each group and for the legend. @param {Set<string> | null} chosen */
  count(chosen) {
    const asked = this.answers.size > 0;
    const entries = legendOf(asked);
    /** @type {Map<string, number>} */
    const all = new Map();
    for (const group of this.groups) {
      /** @type {Map<string, number>} */
      const own = new Map();
      let left = 0;
      for (const node of group.nodes) {
        const look = lookOf(node, this.answers.get(node.name), asked);
        own.set(look, (own.get(look) ?? 0) + 1);
        all.set(look, (all.get(look) ?? 0) + 1);
        if (!chosen || chosen.has(node.name)) left++;
      }
      const parts = asked ? entries.filter(({ look }) => own.has(look)).map(({ look, text }) => `${number(own.get(look) ?? 0)} ${text}`) : [];
      const filtered = left < group.nodes.length;
      const nodes = filtered ? `${number(left)} of ${plural(group.nodes.length, "node")}` : plural(left, "node");
      group.counts.textContent = (parts.length && !filtered ? parts : [nodes, ...parts]).join(" · ");
    }
    fill(this.legend, h("span", { class: "legend-title" }, asked ? "Answer to the pod:" : "Exclusive CPUs free on one NUMA node:"),
      entries.filter(({ look }) => all.has(look)).map(({ look, text, filter }) => {
        const content = [h("i", { class: `cell ${look}`, "aria-hidden": "true" }), ` ${text} `, h("strong", {}, number(all.get(look) ?? 0))];
        return filter
          ? h("button", { type: "button", class: "key quiet", onclick: () => this.actions.filter(filter) }, content)
          : h("span", { class: "key" }, content);
      }));
  }

  /** Choose the size of the cells, so that all of them are on the screen if that is possible. */
  arrange() {
    const { clientWidth, clientHeight } = this.viewport;
    if (!clientWidth || !clientHeight) return;
    const { pitch, columns } = pack(this.groups.map((group) => group.nodes.length), { width: clientWidth, height: clientHeight });
    const focused = document.activeElement;
    const layout = JSON.stringify([this.signature.length, pitch, columns.map(({ groups }) => groups)]);
    if (this.board.dataset.layout === layout && this.board.firstChild) return;
    this.board.dataset.layout = layout;
    this.board.style.setProperty("--pitch", `${pitch}px`);
    fill(this.board, columns.map(({ groups, cells }) => h("div", { class: "shelf" }, groups.map((i) => this.section(this.groups[i], cells)))));
    if (focused instanceof HTMLElement && focused.isConnected) focused.focus({ preventScroll: true });
  }

  /** @param {Group} group @param {number} columns cells in a row */
  section(group, columns) {
    group.columns = columns;
    group.list.style.setProperty("--columns", String(columns));
    return h("section", { class: "group", "aria-label": group.title },
      h("header", {},
        h("h3", {}, h("button", {
          type: "button", class: "quiet", title: group.title, "aria-label": `${group.title}: show as tiles`, onclick: () => this.actions.zoom(group.title),
        }, group.title)),
        group.counts),
      group.list);
  }

  /** @param {EventTarget | null} target @returns {Cell | undefined} */
  cellAt(target) {
    const element = target instanceof HTMLElement ? target.closest("[data-name]") : null;
    return element instanceof HTMLElement ? this.cells.get(element.dataset.name ?? "") : undefined;
  }

  /** Give a node the keyboard's focus. @param {string} name */
  focus(name) {
    const cell = this.cells.get(name);
    cell?.element.focus();
  }

  /** @param {FocusEvent} event */
  onFocus(event) {
    const cell = this.cellAt(event.target);
    if (!cell) return;
    for (const each of cell.group.list.querySelectorAll("[tabindex='0']")) /** @type {HTMLElement} */ (each).tabIndex = -1;
    cell.element.tabIndex = 0;
    if (cell.element.matches(":focus-visible")) this.showPeek(cell);
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const cell = this.cellAt(event.target);
    if (!cell) return;
    const isTouch = event instanceof PointerEvent && event.pointerType === "touch";
    if (isTouch && this.peek.dataset.name !== cell.node.name) this.showPeek(cell, 0); // the second tap opens the node
    else this.actions.open(cell.node.name);
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const cell = this.cellAt(event.target);
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.actions.open(cell.node.name);
      return;
    }
    const { nodes, columns } = cell.group;
    /** @type {Record<string, number>} */
    const steps = {
      ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns,
      PageDown: PAGE_ROWS * columns, PageUp: -PAGE_ROWS * columns, Home: -nodes.length, End: nodes.length,
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    this.focus(nodes[Math.min(nodes.length - 1, Math.max(0, cell.index + step))].name);
  }

  /** Show the tile of a node beside its cell. @param {Cell | undefined} cell @param {number} [delay] ms */
  showPeek(cell, delay = PEEK_DELAY_MS) {
    clearTimeout(this.timer);
    if (!cell) {
      this.hidePeek();
      return;
    }
    this.timer = setTimeout(() => {
      if (!cell.element.isConnected) return;
      const { name } = cell.node;
      this.peek.dataset.name = name;
      this.peek.hidden = false;
      this.place(cell.element.getBoundingClientRect());
      fill(this.peek, tile(cell.node, this.answers.get(name), { href: "#", current: false }));
    }, delay);
  }

  /** @param {DOMRect} cell */
  place(cell) {
    const { width, height, gap } = PEEK;
    const right = cell.right + gap + width <= innerWidth;
    const left = right ? cell.right + gap : Math.max(gap, Math.min(cell.left - gap - width, innerWidth - width - gap));
    const below = cell.bottom + gap + height <= innerHeight;
    this.peek.style.left = `${left}px`;
    this.peek.style.top = `${below ? cell.bottom + gap : Math.max(gap, cell.top - gap - height)}px`;
  }

  hidePeek() {
    clearTimeout(this.timer);
    this.peek.hidden = true;
    delete this.peek.dataset.name;
  }
}
