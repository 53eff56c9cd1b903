// The pasted pod: the question, the summary of all answers, and the faulty part if the pod cannot be read.
import { ApiError, ask as askService } from "./api.js";
import { capacityCard } from "./capacity.js";
import { byId, fill, h, icon } from "./dom.js";
import { EXAMPLES } from "./examples.js";
import { askPlan, isBundle, placesOf, planHeadline, planParts } from "./plan.js";
import { addressOf, emit, keepAsked, on, setFilters, state } from "./state.js";
import { number, plural } from "./units.js";
import { answerOf, isAdmitted } from "./verdict.js";

const KEPT = "numa-extender-pod";
const KIND_ORDER = /** @type {const} */ (["yes", "split", "unmanaged", "unsure", "now", "never"]);

const form = /** @type {HTMLFormElement} */ (byId("ask"));
const manifest = /** @type {HTMLTextAreaElement} */ (byId("manifest"));
const fault = byId("ask-error");
const headline = byId("headline");
const output = byId("answer");
const submit = /** @type {HTMLButtonElement} */ (form.querySelector("button.primary"));
/** @type {AbortController | null} */
let asking = null;

/** Listen, and ask the question of the address, or about the pod that was pasted before a reload. @param {string} asked */
export function setUpAsking(asked) {
  const example = /** @type {HTMLSelectElement} */ (byId("example"));
  fill(example, h("option", { value: "" }, "Examples…"),
    EXAMPLES.map(({ title }, i) => h("option", { value: i }, title)));
  example.addEventListener("change", () => {
    const chosen = EXAMPLES[Number(example.value)];
    if (example.value !== "" && chosen) manifest.value = chosen.manifest;
    example.value = "";
    manifest.focus();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  manifest.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  byId("clear").addEventListener("click", clear);
  on("answers", showAnswer);
  on("filters", showAnswer);
  manifest.value = asked || (sessionStorage.getItem(KEPT) ?? "");
  if (manifest.value) ask();
}

async function ask() {
  asking?.abort();
  const control = asking = new AbortController();
  const text = manifest.value.trim() ? manifest.value : "";
  if (!text) {
    refuse("Paste a pod first.");
    return;
  }
  submit.disabled = true;
  submit.textContent = "Asking…";
  try {
    const isPlan = isBundle(text);
    const reply = isPlan ? null : await askService("/v1/what-if", "pod", text, {}, control.signal);
    const plan = isPlan ? await askPlan(text, allOrNothing.checked, control.signal) : null;
    sessionStorage.setItem(KEPT, text);
    state.asked = text;
    keepAsked();
    fault.textContent = "";
    manifest.removeAttribute("aria-invalid");
    take(isPlan ? "" : text, reply, plan);
    if (state.filters.verdict || state.filters.why) setFilters({ verdict: "", why: "" });
    emit("answers");
  } catch (error) {
    if (control.signal.aborted) return;
    if (!(error instanceof ApiError)) throw error;
    take("", null, null); // an answer to another question is not left below an error
    emit("answers");
    refuse(error.message);
  } finally {
    if (asking === control) {
      submit.disabled = false;
      submit.textContent = "Where would it run?";
    }
  }
}

/** @param {string} text @param {any} reply a WhatIfReply, or null @param {import("./plan.js").Plan | null} plan */
function take(text, reply, plan) {
  state.manifest = text;
  state.reply = reply;
  state.plan = plan;
  const places = plan ? placesOf(plan) : null;
  state.placements = places?.placements ?? new Map();
  state.answers = places?.answers ?? new Map(reply?.nodes.map((/** @type {any} */ node) => [node.node, answerOf(node)]));
}

/** Ask about another manifest, as if the user had pasted it. @param {string} text */
export function askAbout(text) {
  manifest.value = text;
  form.requestSubmit();
}

/** @param {string} text */
function refuse(text) {
  fault.textContent = text;
  manifest.setAttribute("aria-invalid", "true");
  manifest.focus();
}

function clear() {
  asking?.abort();
  sessionStorage.removeItem(KEPT);
  state.asked = "";
  keepAsked();
  manifest.value = "";
  fault.textContent = "";
  take("", null, null);
  setFilters({ verdict: "", why: "" });
  emit("answers");
  manifest.focus();
}

/** The current answer. The card about capacity stays while only filters change. @type {any} */
let shown = null;
let askedAt = "";
/** @type {HTMLElement | null} */
let capacity = null;

function showAnswer() {
  const { reply, plan } = state;
  if (plan) {
    showPlan(plan);
    return;
  }
  if (!reply) {
    shown = null;
    fill(headline);
    fill(output);
    return;
  }
  if (shown !== reply) {
    shown = reply;
    capacity = capacityCard(state.manifest);
    askedAt = new Date().toLocaleTimeString();
  }
  const answers = [...state.answers.values()];
  const aligned = answers.filter(({ kind }) => kind === "yes").length;
  const admitted = answers.filter(({ kind }) => isAdmitted(kind)).length;
  const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.reason : undefined;
  const kind = aligned ? "yes" : admitted ? "split" : "never";
  showHeadline(kind, headlineOf(aligned, admitted, answers.length));
  fill(output,
    wants(reply.pod),
    share(answers),
    reasons(answers),
    admitted ? null : h("p", { class: "hint" }, "Choose a node to see why, and what would be admitted there."),
    admitted ? capacity : null);
  if (focused !== undefined) {
    const again = [...output.querySelectorAll("button")].find((button) => button.dataset.reason === focused);
    again?.focus();
  }
}

/** @param {"yes" | "split" | "never"} kind @param {string} text */
function showHeadline(kind, text) {
  if (headline.textContent !== text) fill(headline, icon(kind), text);
  headline.className = `headline ${kind}`;
}

/** Asks again about the plan. */
const allOrNothing = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", onchange: ask }));

/** @param {import("./plan.js").Plan} plan */
function showPlan(plan) {
  if (shown === plan) return;
  shown = plan;
  const { kind, text } = planHeadline(plan);
  showHeadline(kind, text);
  const hadFocus = document.activeElement === allOrNothing;
  fill(output, h("label", { class: "all-or-nothing" }, allOrNothing, "All or nothing: if one pod fits nowhere, place none"), ...planParts(plan));
  if (hadFocus) allOrNothing.focus();
}

/** @param {number} aligned @param {number} admitted aligned ones included @param {number} nodes */
function headlineOf(aligned, admitted, nodes) {
  if (!admitted) return "Admitted on no node";
  const others = admitted - aligned;
  if (!aligned) return `Aligned on no node, admitted on ${number(admitted)} of ${plural(nodes, "node")}`;
  return `Aligned on ${number(aligned)} of ${plural(nodes, "node")}${others ? `, admitted on ${number(others)} more` : ""}`;
}

/** @param {any} pod a PodSummary */
function wants(pod) {
  const requests = Object.entries(pod.requests).map(([name, quantity]) => `${name} ${quantity}`).join(", ");
  return h("div", { class: "hint" },
    h("p", {}, `${pod.kind} ${pod.namespace}/${pod.name} · ${pod.qos}${requests ? ` · ${requests}` : ""}`),
    h("p", {}, `Asked at ${askedAt}`),
    pod.notes.map((/** @type {string} */ note) => h("p", {}, note)));
}

/** @param {import("./verdict.js").Answer[]} answers */
function share(answers) {
  const count = (/** @type {string} */ kind) => answers.filter((answer) => answer.kind === kind).length;
  return h("div", { class: "share", "aria-hidden": "true" },
    KIND_ORDER.filter(count).map((kind) => h("i", { class: kind, vars: { flex: String(count(kind)) } })));
}

/** On small screens the nodes are another view. @param {{verdict: string, why: string}} filters */
function filterBy(filters) {
  setFilters(filters);
  if (byId("nodes-pane").offsetParent === null) location.hash = addressOf("");
}

const ADMITS = { yes: "the pod is aligned", split: "admitted, split over NUMA nodes", unmanaged: "admitted, not managed" };

/** The answers with counts. Each line filters the map. @param {import("./verdict.js").Answer[]} answers */
function reasons(answers) {
  /** @type {Map<string, {kind: import("./verdict.js").Answer["kind"], why: string, count: number}>} */
  const groups = new Map();
  for (const { kind, why } of answers) {
    const group = groups.get(`${kind} ${why}`) ?? { kind, why, count: 0 };
    group.count++;
    groups.set(`${kind} ${why}`, group);
  }
  const ordered = [...groups.values()].sort((a, b) => KIND_ORDER.indexOf(a.kind) - KIND_ORDER.indexOf(b.kind) || b.count - a.count);
  return h("ul", { class: "reasons", "aria-label": "Nodes by what they answer" }, ordered.map(({ kind, why, count }) => {
    const pressed = state.filters.verdict === kind && state.filters.why === why;
    return h("li", {}, h("button", {
      type: "button", class: kind, "aria-pressed": String(pressed), data: { reason: `${kind} ${why}` },
      onclick: () => filterBy(pressed ? { verdict: "", why: "" } : { verdict: kind, why }),
    }, icon(kind), h("span", {}, why || ADMITS[/** @type {keyof typeof ADMITS} */ (kind)]), h("span", { class: "n" }, number(count))));
  }));
}
