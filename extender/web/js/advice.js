// Questions to ask before a restart, a move, a resize or a new configuration. The service replays; nothing changes.
import { adviceAnswers } from "./adviceanswers.js";
import { ApiError, askLines } from "./api.js";
import { fill, h } from "./dom.js";
import { on, state } from "./state.js";

/** @typedef {{name: string, label: string, kind?: "check" | "number" | "node" | "pod" | "text", hint?: string, value?: string, max?: number, isWide?: boolean}} Field */
/** @typedef {{name: string, title: string, about: string, fields: Field[], question: (values: Record<string, any>) => Record<string, unknown>}} AdviceQuestion */

const NODE = /** @type {Field} */ ({ name: "node", label: "Node", kind: "node" });
const POD = /** @type {Field} */ ({ name: "pod", label: "Pod or workload, YAML or JSON", kind: "pod" });

/** @type {AdviceQuestion[]} */
const QUESTIONS = [
  {
    name: "restart-check", title: "Restart or reconfigure a kubelet",
    about: "Which state files the kubelet refuses at its start, and which pods it does not admit again. Nodes come in a safe order.",
    fields: [NODE, { name: "kubelet_version", label: "Kubelet version afterwards", hint: "the same" },
      { name: "settings", label: "Changed settings, FIELD=VALUE", hint: "topologyManagerPolicy=restricted", isWide: true },
      { name: "reboot", label: "The machine reboots", kind: "check" }],
    question: ({ node, kubelet_version, settings, reboot }) => ({
      nodes: node ? [node] : null, kubelet_version: kubelet_version || null, kubelet: kubeletOf(settings), reboot,
    }),
  },
  {
    name: "make-room", title: "Make room for a pod",
    about: "The fewest and cheapest evictions with which a node aligns the pod, and where the evicted pods go.",
    fields: [POD, { ...NODE, label: "Node that gets the pod" }, { name: "max_evictions", label: "Evictions at most", kind: "number", value: "4", max: 8 }],
    question: ({ node, max_evictions }) => ({ nodes: node ? [node] : null, max_evictions }),
  },
  {
    name: "defragment", title: "Defragment the cluster",
    about: "How many more aligned copies of the pod fit after so many moves, and which moves these are.",
    fields: [POD, { name: "max_moves", label: "Moves at most", kind: "number", value: "5", max: 64 }],
    question: ({ max_moves }) => ({ max_moves }),
  },
  {
    name: "resize-check", title: "Resize a pod in place",
    about: "Whether the kubelet accepts other amounts for a running container, and where the pod would go if it were recreated.",
    fields: [{ name: "target", label: "Pod, NAMESPACE/NAME", hint: "demo/worker-0" }, { name: "container", label: "Container", hint: "the only one" },
      { name: "cpu", label: "New CPU request", hint: "unchanged" }, { name: "memory", label: "New memory request", hint: "unchanged" }],
    question: ({ target, container, cpu, memory }) => ({ pod: target, container, cpu: cpu || null, memory: memory || null }),
  },
  {
    name: "tune", title: "Compare kubelet configurations",
    about: "The pods of each node, replayed in random order under other configurations. Those that no other one surpasses are listed.",
    fields: [NODE, { name: "configurations", label: "Configurations to try", kind: "number", value: "32", max: 200 },
      { name: "seed", label: "Seed", kind: "number", value: "1", max: 4294967295 }],
    question: ({ node, configurations, seed }) => ({ nodes: node ? [node] : null, configurations, seed }),
  },
  {
    name: "rightsize", title: "Find requests that just miss a boundary",
    about: "Pods of which more would be aligned with a slightly smaller request.",
    fields: [NODE],
    question: ({ node }) => ({ nodes: node ? [node] : null }),
  },
];

const choice = /** @type {HTMLSelectElement} */ (h("select", { id: "advice-question", onchange: showForm },
  QUESTIONS.map(({ name, title }) => h("option", { value: name }, title))));
const about = h("p", { class: "hint", id: "advice-about" });
const fields = h("div", { class: "fields" });
const error = h("p", { class: "error", role: "alert" });
const result = h("div", { class: "advice-result", role: "status" });
const submit = /** @type {HTMLButtonElement} */ (h("button", { type: "submit", class: "primary" }, "Replay"));
const cancel = /** @type {HTMLButtonElement} */ (h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Cancel"));
const bar = /** @type {HTMLProgressElement} */ (h("progress", { max: 1, value: 0, hidden: true, "aria-label": "Progress of the replay" }));
const pane = h("div", { class: "advice" },
  h("div", { class: "welcome" }, h("h2", {}, "Advice"), h("p", {}, "Ask before you restart, move, resize or reconfigure. Nothing in the cluster changes by asking.")),
  h("form", { novalidate: true, onsubmit: run, "aria-describedby": "advice-about" },
    h("div", { class: "fields" }, h("label", { class: "wide", htmlFor: "advice-question" }, "Question", choice)),
    about, fields, error, h("div", { class: "row" }, submit, cancel), bar),
  result);
/** @type {AbortController | null} */
let running = null;

/** @param {HTMLElement} side */
export function showAdvice(side) {
  fill(side, pane);
  showForm();
}

function chosen() {
  return QUESTIONS.find(({ name }) => name === choice.value) ?? QUESTIONS[0];
}

function showForm() {
  const question = chosen();
  running?.abort();
  error.textContent = "";
  about.textContent = question.about;
  if (result.dataset.name !== question.name) fill(result);
  fill(fields, question.fields.map(input));
}

function nodeOptions() {
  return [h("option", { value: "" }, "all nodes"), ...state.nodes.map(({ name }) => h("option", { value: name }, name))];
}

on("nodes", () => {
  const select = /** @type {HTMLSelectElement | null} */ (fields.querySelector("[name=node]"));
  if (!select || select.length === state.nodes.length + 1) return;
  const { value } = select;
  fill(select, nodeOptions());
  select.value = value;
});

/** @param {Field} field */
function input({ name, label, kind = "text", hint = "", value = "", max, isWide = false }) {
  if (kind === "check") return h("label", { class: "check" }, h("input", { type: "checkbox", name }), label);
  if (kind === "node") {
    return h("label", {}, label, h("select", { name }, nodeOptions()));
  }
  if (kind === "pod") return h("label", { class: "wide" }, label, h("textarea", { name, rows: 8, spellcheck: false, value: state.manifest }));
  return h("label", { class: isWide ? "wide" : null }, label, h("input", { name, type: kind, placeholder: hint, value, ...(max ? { min: "0", max: String(max) } : {}), autocomplete: "off" }));
}

/** @param {Event} event */
async function run(event) {
  event.preventDefault();
  const question = chosen();
  const controls = /** @type {NodeListOf<HTMLInputElement>} */ (fields.querySelectorAll("[name]"));
  /** @type {Record<string, any>} */
  const values = Object.fromEntries([...controls].map((each) => [each.name, each.type === "checkbox" ? each.checked : each.type === "number" ? Number(each.value) : each.value.trim()]));
  running = new AbortController();
  const { signal } = running;
  busy(true);
  fill(result);
  try {
    if ("pod" in values && !values.pod) throw new ApiError("Paste a pod or a workload first.", 0, "pod");
    const answer = await askLines(`/v1/advice/${question.name}`, "pod", values.pod ?? null, question.question(values), ({ progress }) => {
      if (!progress) return;
      bar.max = progress.of;
      bar.value = progress.done;
    }, signal);
    result.dataset.name = question.name;
    fill(result, adviceAnswers[question.name](answer), answer.notes.length ? h("ul", { class: "hint" }, answer.notes.map((/** @type {string} */ note) => h("li", {}, note))) : null);
  } catch (fault) {
    if (signal.aborted) error.textContent = "Cancelled.";
    else if (fault instanceof ApiError) error.textContent = fault.field && !fault.message.startsWith(fault.field) ? `${fault.field}: ${fault.message}` : fault.message;
    else throw fault;
  } finally {
    busy(false);
  }
}

/** @param {boolean} isBusy */
function busy(isBusy) {
  submit.disabled = isBusy;
  cancel.hidden = bar.hidden = !isBusy;
  if (isBusy) {
    error.textContent = "";
    bar.removeAttribute("value");
  }
}

/** FIELD=VALUE and FIELD.KEY=VALUE, separated by white space. @param {string} text */
function kubeletOf(text) {
  /** @type {Record<string, any>} */
  const kubelet = {};
  for (const part of text.split(/\s+/).filter(Boolean)) {
    const [path, value] = part.split(/=(.*)/s);
    const [field, key] = path.split(/\.(.*)/s);
    if (value === undefined) throw new ApiError(`${part} is not of the form FIELD=VALUE.`, 0, null);
    if (key) kubelet[field] = { ...kubelet[field], [key]: field === "featureGates" ? value === "true" : value };
    else kubelet[field] = value;
  }
  return kubelet;
}
