// The answers to questions of advice, as tables and pictures.
import { h, icon, table, tag } from "./dom.js";
import { nodeAddress } from "./state.js";
import { number, plural } from "./units.js";

/** @type {Record<string, (answer: any) => import("./dom.js").Child[]>} */
export const adviceAnswers = {
  "restart-check": restart, "make-room": room, defragment: curve, "resize-check": resize, tune, rightsize,
};

const ACTIONS = /** @type {const} */ ({
  restart: ["restart", "yes"], "drain-first": ["drain first", "now"], "drain-and-delete-files": ["drain, delete files", "now"],
  "does-not-start": ["does not start", "never"], unknown: ["unknown", "unsure"],
});
const RESULTS = /** @type {const} */ ({ kept: ["kept", "yes"], moved: ["moves", "split"], "may-fail": ["may fail", "now"], fails: ["fails", "never"] });

/** @param {string} name */
function node(name) {
  return h("a", { href: nodeAddress(name) }, name);
}

/** @param {string} kind of a headline @param {string} text */
function headline(kind, text) {
  return h("p", { class: `headline ${kind}` }, icon(/** @type {"yes"} */ (kind)), text);
}

/** Where the containers of a pod would be. @param {Record<string, any>} containers */
function places(containers) {
  return h("ul", {}, Object.entries(containers).map(([name, { cpus, numa }]) =>
    h("li", {}, `${name}: `, numa.length ? `NUMA ${numa.join(", ")}; ` : "", cpus ? h("code", {}, `CPUs ${cpus}`) : "shared CPUs")));
}

/** @param {any} answer */
function restart({ nodes, summary }) {
  const bad = summary.fails + summary.may_fail;
  const last = { restart: 0, ...summary.actions }.restart;
  return [
    headline(bad || last < summary.nodes ? "now" : "yes", `${number(last)} of ${plural(summary.nodes, "node")} can restart without a drain; ${number(bad)} of ${plural(summary.pods, "pod")} would fail`),
    table("Nodes in a safe order", ["Node", "Do this", "Pods"], nodes.map((/** @type {any} */ each) => [
      node(each.node), tag(...(/** @type {[string, any]} */ ([...ACTIONS[/** @type {"restart"} */ (each.action)]]))),
      h("div", {}, each.error, each.refused_files.map((/** @type {any} */ file) => h("p", {}, h("code", {}, file.file), `: ${file.reason}`)),
        h("p", { class: "hint" }, `${number(each.kept)} kept${each.moved ? `, ${number(each.moved)} move` : ""}${each.fails + each.may_fail ? `, ${number(each.fails + each.may_fail)} fail` : ""}`),
        each.pods.length ? h("details", { open: each.pods.length < 4 }, h("summary", {}, plural(each.pods.length, "pod")), h("ul", {}, each.pods.map(restarted))) : null),
    ])),
  ];
}

/** @param {any} pod a RestartedPodInfo */
function restarted(pod) {
  const [text, kind] = RESULTS[/** @type {"kept"} */ (pod.result)];
  const what = pod.reason ? ` ${pod.reason}: ${pod.message}` : pod.cpus_before ? ` CPUs ${pod.cpus_before}${pod.result === "moved" ? ` to ${pod.cpus_after || "shared"}` : ""}` : "";
  return h("li", {}, tag(text, kind), ` ${pod.pod}`, what, pod.elsewhere ? [" Instead: ", node(pod.elsewhere)] : null);
}

/** @param {any} answer */
function room({ result, plans, searched, blocked }) {
  if (result === "none") return [headline("never", `No plan was found (${number(searched)} tried)`), h("ul", {}, blocked.map((/** @type {string} */ each) => h("li", {}, each)))];
  if (result === "fits") return [headline("yes", "A node aligns the pod now"), node(plans[0].node), places(plans[0].containers)];
  return [
    headline("yes", `${plural(plans[0].evictions.length, "eviction")} can open an aligned place`),
    h("div", { class: "plans" }, plans.map((/** @type {any} */ plan, /** @type {number} */ i) => h("section", { "aria-label": `Plan ${i + 1}` },
      h("h3", {}, `Plan ${i + 1}: on `, node(plan.node)), moves(plan.evictions), h("p", {}, "Then the pod gets"), places(plan.containers),
      plan.script ? code("Script for kubectl", plan.script) : null, code("Eviction objects", plan.objects)))),
  ];
}

/** @param {any[]} evictions */
function moves(evictions) {
  return h("ol", {}, evictions.map((each) => h("li", {}, `Evict ${each.pod} on `, node(each.node), "; its replacement fits on ", node(each.to), each.numa.length ? `, NUMA ${each.numa.join(", ")}` : "")));
}

/** @param {string} title @param {string} text */
export function code(title, text) {
  return h("details", {}, h("summary", {}, title), h("pre", { tabIndex: 0, role: "group", "aria-label": title }, text));
}

/** @param {any} answer */
function curve({ curve: points, objects }) {
  const most = Math.max(1, ...points.map((/** @type {any} */ each) => each.copies));
  const last = points[points.length - 1];
  return [
    headline(points.length > 1 ? "yes" : "now", points.length > 1
      ? `${plural(last.moves, "move")} would make room for ${plural(last.copies - points[0].copies, "more aligned pod")}` : "No move gains an aligned copy"),
    h("div", { class: "bars" }, points.flatMap((/** @type {any} */ each) => [
      h("span", {}, each.moves ? plural(each.moves, "move") : "now"),
      h("progress", { max: most, value: each.copies, "aria-label": `Aligned copies after ${plural(each.moves, "move")}` }),
      h("span", {}, number(each.copies)),
    ])),
    h("p", { class: "hint" }, `The largest such pod that would be aligned: ${plural(points[0].largest_cpus, "CPU")} now, ${plural(last.largest_cpus, "CPU")} then.`),
    ...points.slice(1).map((/** @type {any} */ each) => moves(each.evictions)),
    objects ? code("Eviction objects", objects) : null,
  ];
}

/** @param {any} answer */
function resize(answer) {
  const change = Object.entries(answer.after).map(([name, amount]) => `${name} ${answer.before[name]} to ${amount}`).join(", ");
  const fits = answer.result === "fits";
  return [
    headline(fits ? "yes" : answer.result === "deferred" ? "now" : "never", `${answer.pod}, container ${answer.container}, ${change}: ${answer.result}`),
    h("p", {}, "On ", node(answer.node), answer.reason ? `: ${answer.reason}.` : ".", answer.exclusive_cpus ? [" The container keeps its CPUs ", h("code", {}, answer.exclusive_cpus), "."] : null),
    table("The pod recreated", ["If recreated on", "Placement, or why not"], [answer.recreated, ...answer.elsewhere].map((each, i) => [
      h("span", {}, node(each.node), i ? "" : " (its own)"), each.outcome === "fits" ? places(each.containers) : each.reason || "nothing is known of the node",
    ])),
    h("p", { class: "hint" }, `${plural(answer.other_nodes, "other node")} would admit it.`),
  ];
}

/** @param {any} answer */
function tune({ configurations, pods, nodes, tried, seed }) {
  return [
    h("p", {}, `${plural(pods, "pod")} on ${plural(nodes, "node")}, ${number(tried)} configurations tried, seed ${seed}.`),
    pareto(configurations),
    table("Configurations that no other one surpasses", [{ num: "No." }, "Configuration", ...["Admitted", "Aligned", "Split", "Refused", "Stranded CPUs"].map((num) => ({ num })), "At the restart"],
      configurations.map((/** @type {any} */ each, /** @type {number} */ i) => [
        { num: number(i + 1) }, each.current ? "as it is" : h("div", {}, Object.entries(each.change).map(([name, value]) => h("div", {}, `${name}=${value || "(none)"}`)), each.guarantee_ends ? h("div", { class: "hint" }, `Ends the guarantee of alignment on ${plural(each.guarantee_ends, "node")}`) : null, each.patches.map((/** @type {any} */ patch) => code(`Change for ${plural(patch.nodes.length, "node")}`, `# nodes: ${patch.nodes.join(", ")}\n${patch.patch}`))),
        ...[each.admitted_least === each.admitted_most ? number(each.admitted) : `${number(each.admitted)} (${each.admitted_least}-${each.admitted_most})`,
          ...[each.aligned, each.split, each.refused, each.stranded_cpus].map(number)].map((num) => ({ num })),
        each.restart ? restartOf(each.restart) : each.current ? "" : "not checked",
      ])),
  ];
}

/** The configurations by stranded CPUs and by aligned pods, with their numbers in the table. It repeats what the table says. @param {any[]} configurations */
function pareto(configurations) {
  /** @param {string} key */
  const scale = (key) => {
    const all = configurations.map((each) => each[key]);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return { low, high, at: (/** @type {any} */ each) => (each[key] - low) / (high - low || 1) };
  };
  const [x, y] = [scale("stranded_cpus"), scale("aligned")];
  return h("figure", { class: "pareto", "aria-hidden": "true" },
    h("div", { class: "field" }, configurations.map((each, i) => h("span", {
      class: each.current ? "dot current" : "dot", vars: { "--x": `${100 - 100 * x.at(each)}%`, "--y": `${100 * y.at(each)}%` }, title: `${each.aligned} aligned, ${plural(each.stranded_cpus, "stranded CPU")}`,
    }, number(i + 1)))),
    h("figcaption", {}, `Up: more aligned pods (${number(y.low)} to ${number(y.high)}). Right: fewer stranded CPUs (${number(x.high)} to ${number(x.low)}). No. 1 is as it is.`));
}

/** @param {any} restart a TuneRestart */
function restartOf({ files_refused, not_starting, pods_to_drain }) {
  const parts = [pods_to_drain && `${plural(pods_to_drain, "pod")} to drain`, files_refused && `files refused on ${plural(files_refused, "node")}`,
    not_starting && `${plural(not_starting, "node")} would not start`].filter(Boolean);
  return parts.join(", ") || "no pod fails";
}

/** @param {any} answer */
function rightsize({ suggestions, shapes, found }) {
  if (!suggestions.length) return [headline("yes", `No request of ${plural(shapes, "shape")} of pods just misses a boundary`)];
  return [
    headline("split", `${plural(found, "suggestion")} for ${plural(shapes, "shape")} of pods`),
    table("Requests that just miss a boundary", [{ num: "Pods" }, "Such as", "Request", "Instead", "Which is", { num: "Aligned copies" }],
      suggestions.map((/** @type {any} */ each) => [
        { num: number(each.pods) }, each.examples[0], `${each.before} ${each.resource}`, each.after, each.boundary, { num: `${number(each.copies_before)} to ${number(each.copies_after)}` },
      ])),
  ];
}
