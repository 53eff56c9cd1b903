// Creates elements. Text always becomes a text node, so that the name of a pod can never become markup.

const ICONS = {
  yes: "m5 12.5 4.5 4.5L19 7.5",
  split: "M4 5h6v14H4zM14 5h6v14h-6z",
  unmanaged: "M5 12h14",
  now: "M12 7v5l3.5 2M21 12a9 9 0 1 1-18 0 9 9 0 0 1 18 0",
  never: "m7 7 10 10M17 7 7 17",
  unsure: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4M12 17.5v.01",
  warning: "M12 4 2.8 20h18.4L12 4M12 10v4.5M12 17.3v.01",
  stale: "M12 7v5l-3 2M4 12a8 8 0 1 0 2.5-5.8L4 8.5M4 4v4.5h4.5",
};

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * An element: properties by their DOM name, attributes where no property has the name, `on…` for listeners.
 * @param {string} tag
 * @param {Record<string, unknown>} [props]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), /** @type {EventListener} */ (value));
    else if (name === "class") element.className = String(value);
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name === "vars") for (const [key, each] of Object.entries(/** @type {object} */ (value))) element.style.setProperty(key, each);
    else if (name in element && !name.startsWith("aria") && name !== "list") Reflect.set(element, name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {(Child | Child[])[]} children
 */
function append(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Replace what is in an element.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** @param {string} id */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

/**
 * A small picture that only repeats what the text beside it says.
 * @param {keyof typeof ICONS} name
 */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/**
 * A word in a pill.
 * @param {string} text
 * @param {keyof typeof ICONS} [kind]
 * @param {string} [title]
 */
export function tag(text, kind, title) {
  return h("span", { class: `tag ${kind ?? ""}`, title: title ?? null }, kind ? icon(kind) : null, text);
}

/** A Linux list that breaks between its ranges only. @param {string} text */
export function ranges(text) {
  const parts = text.split(",");
  const last = parts.length - 1;
  return h("code", { class: "ranges" }, parts.map((part, i) => h("span", {}, part, i < last ? [",", h("wbr")] : null)));
}

/**
 * A table with a caption for screen readers. Cells are children; `{num: …}` is set to the right.
 * @param {string} caption
 * @param {(string | {num: string})[]} heads
 * @param {(Child | Child[] | {num: Child})[][]} rows
 */
export function table(caption, heads, rows) {
  const frame = h("div", { class: "scroll-x", role: "group", "aria-label": caption, tabindex: "0" },
    h("table", {},
      h("caption", { class: "sr" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => cell("th", head, { scope: "col" })))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each) => cell("td", each)))))));
  // In the tab order until it is known that there is nothing to scroll. The table can grow in a frame that does not.
  const sizes = new ResizeObserver(() => { frame.tabIndex = frame.scrollWidth > frame.clientWidth ? 0 : -1; });
  for (const each of [frame, .../** @type {Iterable<Element>} */ (frame.children)]) sizes.observe(each);
  return frame;
}

/**
 * @param {"td" | "th"} name
 * @param {Child | Child[] | {num: Child}} content
 * @param {Record<string, unknown>} [props]
 */
function cell(name, content, props = {}) {
  const isNumber = typeof content === "object" && content !== null && !(content instanceof Node) && "num" in content;
  return isNumber ? h(name, { ...props, class: "num" }, content.num) : h(name, props, /** @type {Child | Child[]} */ (content));
}
