// Declared shapes of pods: how many of each could start now and before.
import { call } from "./api.js";
import { fill, h, tag } from "./dom.js";
import { showFresh } from "./refreshing.js";
import { ago, plural } from "./units.js";

const STEP = 4; // px of one earlier count
const HEIGHT = 24; // px of the most copies

const list = h("div", { class: "groups" });
const pane = h("div", { class: "groups" },
  h("div", { class: "welcome" }, h("h2", {}, "Declared shapes"),
    h("p", {}, "Pods of which some must be able to start at any time, beside those that run.")), list);

/** @param {HTMLElement} side */
export function showShapes(side) {
  showFresh(side, pane, list, refresh);
}

async function refresh() {
  const [{ enabled, shapes, unread }, room] = await Promise.all([call("/v1/shapes"), call("/v1/room")]);
  fill(list,
    shapes.length ? h("ol", { class: "group-list", "aria-label": "Declared shapes" }, shapes.map(item)) : h("p", { class: "hint" }, enabled ? "No shape is declared. Write them into the ConfigMap numa-extender-shapes." : "Set NUMA_EXTENDER_SHAPES=on to declare shapes."),
    Object.entries(unread).map(([name, why]) => h("p", { class: "error" }, `${name} cannot be read: ${why}`)),
    room.mode === "off" ? null : moved(room));
}

/** @param {any} shape a ShapeView */
function item({ name, requests, hard, priority, copies, fits, missing, pools, age_seconds, problem, history }) {
  const now = fits === null ? "not counted yet" : `${fits} could start now, ${copies} must`;
  const of = Object.entries(pools).map(([pool, count]) => `${pool}: ${count}`).join(", ");
  return h("li", {},
    h("div", { class: "row" }, h("span", { class: "name" }, name),
      missing ? tag(`${missing} missing`, "warning") : missing === 0 ? tag("enough", "yes") : tag("not counted", "unmanaged")),
    h("p", {}, `${Object.entries(requests).map(([resource, amount]) => `${amount} ${resource}`).join(", ")} · ${hard ? "hard" : "ranked only"} · priority ${priority}`),
    h("p", {}, now, age_seconds === null ? null : `, counted ${ago(age_seconds)}`, of ? ` · by pool: ${of}` : null),
    problem ? h("p", { class: "error" }, `The last count failed: ${problem}`) : null,
    history.length > 1 ? [h("p", { class: "hint" }, `How many could start since ${ago(history[0].seconds_ago)}:`), chart(history, copies)] : null);
}

/** @param {{seconds_ago: number, fits: number}[]} history @param {number} copies */
function chart(history, copies) {
  const most = Math.max(copies, ...history.map(({ fits }) => fits));
  const least = Math.min(...history.map(({ fits }) => fits));
  const area = history.map(({ fits }, i) => `M${i * STEP} ${HEIGHT}v${-HEIGHT * fits / most}h${STEP - 1}V${HEIGHT}z`).join("");
  const text = `${plural(history.length, "earlier count")} since ${ago(history[0].seconds_ago)}: ${least} at least, ${Math.max(...history.map(({ fits }) => fits))} at most`;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${history.length * STEP} ${HEIGHT}`, width: String(history.length * STEP), height: String(HEIGHT), role: "img", "aria-label": text, class: "past" })) svg.setAttribute(key, value);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", area);
  svg.append(path);
  return svg;
}

/** @param {any} room a RoomView */
function moved({ mode, stopped, finding, evictions, evictions_per_hour, plan, history }) {
  return h("section", {},
    h("h3", {}, "Moved pods"),
    h("p", { class: "hint" }, `${mode === "on" ? "On" : "Dry run"} · ${evictions} of ${evictions_per_hour} evictions in the last hour`),
    stopped ? h("p", { class: "error", role: "alert" }, `Stopped: ${stopped}`) : null,
    finding ? h("p", { class: "hint" }, finding) : null,
    h("ol", { class: "group-list", "aria-label": "Plans" }, [...(plan ? [plan] : []), ...history].map(planned)));
}

/** @param {any} plan a MovePlan */
function planned({ subject, target, state, began_at, note, moves, before, after }) {
  const copies = Object.keys(before).map((name) => `${name}: ${before[name]} before${name in after ? `, ${after[name]} after` : ""}`);
  return h("li", {},
    h("div", { class: "row" }, h("span", { class: "name" }, `For ${subject}`), tag(state.replace("_", " "), state === "running" ? "now" : state === "done" ? "yes" : state === "stopped" ? "warning" : "unmanaged"),
      h("span", { class: "hint" }, `${target ? `on ${target}, ` : ""}began ${ago(Date.now() / 1000 - began_at)}`)),
    note ? h("p", {}, note) : null,
    moves.map((/** @type {any} */ move) => h("p", {}, `${move.namespace}/${move.name}: ${move.source} to ${move.to}, ${move.state}`)),
    copies.length ? h("p", {}, `Copies: ${copies.join("; ")}`) : null);
}
