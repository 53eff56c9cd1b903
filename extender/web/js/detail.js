// The right pane: details of one node.
import { ApiError, ask } from "./api.js";
import { certaintyOf, loadNode, otherCpus } from "./cluster.js";
import { byId, fill, h, icon, ranges, table, tag } from "./dom.js";
import { nearestRequests, story, tryChanges } from "./explain.js";
import { nodeMap, placedOf, podName } from "./map.js";
import { look, slotsOf } from "./palette.js";
import { heldPlaces, redraw } from "./podgroups.js";
import { grantRows, poolMap } from "./pools.js";
import { keepFresh } from "./refreshing.js";
import { addressOf, state } from "./state.js";
import { ago, amount, bytes, parseList, plural, shortResource } from "./units.js";
import { TITLES, answerOf, isAdmitted, verdictParts } from "./verdict.js";

/** Shows one node, and keeps it up to date until stopped. */
export class Detail {
  /** @param {string} name @param {HTMLElement} pane */
  constructor(name, pane) {
    this.name = name;
    this.pane = pane;
    this.control = new AbortController();
    /** @type {any} */
    this.node = null;
    /** Answer to the pod. @type {any} */
    this.answer = null;
    this.heard = h("span", { class: "tag" });
    this.verdict = h("div");
    this.said = h("p", { class: "sr", role: "status" });
    this.mapPlace = h("div");
    this.heldPlace = h("div");
    fill(pane, head(name, []), h("p", { class: "hint", role: "status" }, "Loading…"));
    keepFresh(() => this.refresh(), this.control.signal);
  }

  stop() {
    this.control.abort();
  }

  async refresh() {
    if (document.hidden && this.node) return;
    try {
      const node = await loadNode(this.name, this.control.signal);
      const isSame = this.node?.boot_id === node.boot_id && this.node?.sequence === node.sequence && this.node?.certainty === node.certainty;
      this.node = node;
      fill(this.heard, icon(node.certainty === "stale" ? "stale" : "now"), `heard ${ago(node.heard_seconds_ago)}`);
      this.showHeld();
      if (isSame) return;
      this.show();
      await this.ask();
    } catch (error) {
      if (this.control.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (this.node && error.status !== 404) {
        fill(this.heard, icon("warning"), error.message); // keep the last known state on the page
        return;
      }
      fill(this.pane, head(this.name, []), h("p", { class: "error", role: "alert" }, error.message));
      this.node = null;
    }
  }

  /** Places change more often than reports. What was shown stays if they cannot be loaded. */
  async showHeld() {
    try {
      redraw(this.heldPlace, await heldPlaces(this.name, this.control.signal));
    } catch (error) {
      if (!this.control.signal.aborted && !(error instanceof ApiError)) throw error;
    }
  }

  /** Ask for this node's answer to the pod, with an explanation. */
  async ask() {
    this.answer = null;
    const { manifest } = state;
    if (manifest && this.node) {
      try {
        const rest = { nodes: [this.name], explain: true };
        const reply = await ask("/v1/what-if", "pod", manifest, rest, this.control.signal);
        if (manifest !== state.manifest) return; // the pod was changed or cleared meanwhile; a later call shows that
        this.answer = reply.nodes[0];
      } catch (error) {
        if (this.control.signal.aborted || manifest !== state.manifest) return;
        if (!(error instanceof ApiError)) throw error;
        fill(this.verdict, h("p", { class: "error" }, error.message));
        return;
      }
    }
    this.showVerdict();
    this.showMap(this.verdictShown());
  }

  /** The placement of the pod in question, or of all pods that a plan places here. */
  verdictShown() {
    return this.answer?.verdict ?? state.placements.get(this.name);
  }

  show() {
    const { node } = this;
    const known = node.cpus > 0;
    const drawn = known || node.pools.length > 0;
    keepOpen(this.pane, () => fill(this.pane,
      head(node.name, [certainty(node), this.heard, ...facts(node)]),
      node.resource_policy ? policyMeaning(node) : known ? meaning(node) : null,
      problems(node),
      this.said,
      this.verdict,
      this.heldPlace,
      drawn ? this.mapPlace : h("p", { class: "hint" }, "Without a usable report there is no map."),
      known || node.pools.length ? null : zoneTable(node),
      known ? roomTable(node) : null,
      known ? distances(node) : null,
      drawn ? this.holdersTable() : null,
      otherPods(node),
      settings(node)));
    this.showMap(this.verdictShown());
  }

  showVerdict() {
    const { answer, node } = this;
    if (!answer) {
      fill(this.verdict);
      fill(this.said);
      return;
    }
    const { kind } = answerOf(answer);
    const draw = (/** @type {any} */ verdict) => {
      this.showMap(verdict);
      byId("map").scrollIntoView({ block: "center" });
    };
    fill(this.said, `${node.name}: ${TITLES[kind]}`);
    keepOpen(this.verdict, () => fill(this.verdict, h("section", { class: `card ${kind}`, "aria-label": "What this node answers to the pod" },
      verdictParts(answer),
      isAdmitted(kind) ? null : nearestRequests(answer.explanation?.nearest ?? [], { node: node.name, manifest: state.manifest, draw }),
      answer.explanation ? story(answer.explanation) : null,
      node.cpus > 0 ? tryChanges(node, state.manifest, draw) : null)));
  }

  /** @param {any} verdict */
  showMap(verdict) {
    const { node } = this;
    if (node?.pools.length) fill(this.mapPlace, poolMap(node, verdict));
    else if (node?.cpus > 0) fill(this.mapPlace, nodeMap(node, placedOf(verdict)));
  }

  holdersTable() {
    const { node } = this;
    const slots = slotsOf(node.holders.map((/** @type {any} */ holder) => holder.pod_uid));
    const light = (/** @type {string | null} */ uid) => this.light(uid);
    if (node.pools.length) return this.grantsTable(grantRows(node, light));
    const first = (/** @type {any} */ holder) => parseList(holder.cpus)[0] ?? Infinity;
    const ordered = [...node.holders].sort((a, b) => first(a) - first(b));
    const rows = ordered.map((/** @type {any} */ holder) => {
      const { class: looks, vars } = look(slots.get(holder.pod_uid) ?? 0);
      const who = h("span", { class: "who", onmouseenter: () => light(holder.pod_uid), onmouseleave: () => light(null) },
        h("span", { class: `swatch ${looks}`, vars, "aria-hidden": "true" }),
        h("span", { title: holder.pod_uid }, podName(holder), holder.container ? ` / ${holder.container}` : ""));
      return [who, holder.cpus ? ranges(holder.cpus) : "shared", held(holder), devices(holder)];
    });
    if (!rows.length) return h("p", { class: "hint" }, node.hidden.length ? "What pods hold here is not known." : "No pod holds CPUs, memory or devices for itself here.");
    return h("section", { class: "holders" }, h("h3", {}, "Who holds what"),
      table("Who holds what", ["Pod / container", "CPUs", "Memory", "Devices"], rows));
  }

  /** @param {any[][]} rows */
  grantsTable(rows) {
    const isKnown = this.node.pools[0].containers !== null;
    if (!rows.length) return h("p", { class: "hint" }, isKnown ? "No container holds anything here." : "Which containers hold what is not known.");
    return h("section", { class: "holders" }, h("h3", {}, "Who holds what"),
      table("Who holds what", ["Pod / container", "Pool", "CPUs", "Memory"], rows));
  }

  /** Dim the resources of other pods. @param {string | null} uid */
  light(uid) {
    const map = byId("map");
    if (uid === null) delete map.dataset.held;
    else map.dataset.held = "";
    for (const cell of map.querySelectorAll("[data-uid]")) {
      cell.classList.toggle("lit", cell instanceof HTMLElement && cell.dataset.uid === uid);
    }
  }
}

/** Draw again, and keep open what the user has opened. @param {HTMLElement} element @param {() => void} draw */
function keepOpen(element, draw) {
  const titles = (/** @type {string} */ selector) =>
    [...element.querySelectorAll(selector)].map((summary) => summary.textContent);
  const open = new Set(titles("details[open] > summary"));
  draw();
  for (const details of element.querySelectorAll("details")) {
    if (open.has(details.querySelector("summary")?.textContent ?? "")) details.open = true;
  }
}

/** @param {string} name @param {(Node | null)[]} tags */
function head(name, tags) {
  return h("header", { class: "detail-head" },
    h("div", { class: "row" }, h("h2", { id: "detail-title" }, name), h("a", { class: "close", href: addressOf("") }, "All nodes")),
    h("div", { class: "facts" }, tags));
}

/** @param {any} node */
function certainty(node) {
  const words = certaintyOf(node);
  if (words === "exact") return tag("exact", "yes", "What the node has granted is known.");
  return tag(words, words === "stale" ? "stale" : "unsure");
}

/** @param {any} node */
function facts(node) {
  const facts = [node.kubelet_version, node.resource_policy && `NRI ${node.resource_policy}`,
    node.topology_policy && !(node.resource_policy && node.topology_policy === "none") && `${node.topology_policy} / ${node.topology_scope}`,
    node.pods === null ? null : plural(node.pods, "pod")];
  return facts.filter(Boolean).map((text) => tag(text));
}

/** @type {Record<string, string>} */
const POLICIES = {
  "none": "the kubelet does not align pods.",
  "best-effort": "the kubelet tries to keep a pod on few NUMA nodes, and admits the pod also if it cannot.",
  "restricted": "the kubelet rejects a pod that would be on more NUMA nodes than its size needs.",
  "single-numa-node": "the kubelet rejects a pod that does not fit on one NUMA node.",
};

/** What policy and scope of this node mean. @param {any} node */
function meaning(node) {
  const scope = node.topology_scope === "pod" ? "all containers of a pod are placed together." : "each container of a pod is placed by itself.";
  return h("p", { class: "hint" },
    h("strong", {}, `Policy ${node.topology_policy}`), `: ${POLICIES[node.topology_policy] ?? ""} `,
    node.topology_policy === "none" ? null : [h("strong", {}, `Scope ${node.topology_scope}`), `: ${scope}`]);
}

/** What the policy of the container runtime means, and what is known of it. @param {any} node */
function policyMeaning(node) {
  if (node.resource_policy !== "topology-aware")
    return h("p", { class: "hint" }, h("strong", {}, `NRI policy ${node.resource_policy}`),
      ": a plugin of the container runtime that is not replayed. What it would do with a pod is not known.");
  const knows = node.pools.length ? node.pools[0].containers === null
    ? " Only the amounts that its plugin publishes are known: they prove refusals, and not where a container goes." : ""
    : " Its pools are not known.";
  return h("p", { class: "hint" }, h("strong", {}, "NRI topology-aware policy"),
    ": a plugin of the container runtime chooses a pool when a container is created. A container without a place stays in ",
    h("code", {}, "CreateContainerError"), `; its pod is bound already.${knows}`);
}

/** @param {any} node */
function distances(node) {
  const ids = node.topology.map((/** @type {any} */ numa) => numa.id);
  if (ids.length < 2 || !node.topology.every((/** @type {any} */ numa) => numa.distances.length === ids.length)) return null;
  const rows = node.topology.map((/** @type {any} */ numa) => [`NUMA ${numa.id}`, ...numa.distances.map((/** @type {number} */ each) => ({ num: each }))]);
  return h("section", {}, h("h3", {}, "Distances between NUMA nodes"),
    h("p", { class: "hint" }, "Relative time of a memory access, as the firmware reports it. 10 is local; 20 takes twice as long."),
    table("Distances between NUMA nodes", ["From, to", ...ids.map((/** @type {number} */ id) => ({ num: String(id) }))], rows));
}

/** @param {any} node */
function problems(node) {
  if (!node.problem_list.length && !node.hidden.length) return null;
  const managers = node.hidden.filter((/** @type {string} */ provider) => provider !== "nri"); // its problem says it
  const kinds = /** @type {const} */ ({ info: "yes", warning: "warning", error: "never" });
  return h("section", { class: "card now" }, h("h3", {}, icon("warning"), "What is not known, or wrong"),
    managers.length ? h("p", {}, `No verdict for pods that need the ${managers.join(" or ")} manager.`) : null,
    h("ul", { class: "problems" }, node.problem_list.map((/** @type {any} */ problem) => h("li", {},
      tag(problem.severity, kinds[/** @type {keyof typeof kinds} */ (problem.severity)]),
      h("code", {}, problem.path), ` ${problem.reason} (${problem.source})`))));
}

/** @param {any} node */
function roomTable(node) {
  if (node.resource_policy) return null; // the pools say it
  if (node.cpu_policy !== "static" && node.memory_policy !== "Static" && !Object.keys(node.device_list).length) return null;
  const types = [...new Set(node.topology.flatMap((/** @type {any} */ numa) => Object.keys(numa.free_room.memory)))];
  const resources = Object.keys(node.device_list);
  const heads = ["NUMA", { num: "CPUs" }, ...types.map((type) => ({ num: String(type) })), ...resources.map((name) => ({ num: shortResource(name) }))];
  const rows = node.topology.map((/** @type {any} */ { id, free_room: room }) => [
    String(id), { num: otherCpus(node) === "unknown" ? "–" : room.cpus },
    ...types.map((type) => ({ num: type in room.memory ? bytes(room.memory[type]) : "–" })),
    ...resources.map((name) => ({ num: room.devices[name] ?? 0 })),
  ]);
  return h("section", {}, h("h3", {}, "Largest request that one NUMA node could serve"),
    table("Largest request that one NUMA node could serve", heads, rows));
}

/** Pods that hold nothing for themselves. @param {any} node */
function otherPods(node) {
  const grants = node.pools.flatMap((/** @type {any} */ pool) => pool.containers ?? []);
  const holding = new Set([...node.holders, ...grants].map((/** @type {any} */ holder) => holder.pod_uid));
  const others = (node.pod_list ?? []).filter((/** @type {any} */ pod) => !holding.has(pod.uid));
  if (!others.length) return null;
  return h("details", {}, h("summary", {}, `${plural(others.length, "pod")} ${node.resource_policy ? "without a known grant" : "in the shared pool"}`),
    h("ul", { class: "plain" }, others.map((/** @type {any} */ pod) => h("li", {}, `${pod.namespace}/${pod.name}`))));
}

/** What the node itself says of its NUMA nodes, where no more is known. @param {any} node */
function zoneTable(node) {
  if (!node.zones.length) return null;
  const resources = [...new Set(node.zones.flatMap((/** @type {any} */ zone) => Object.keys(zone.resources)))];
  const rows = node.zones.map((/** @type {any} */ zone) => [zone.name, ...resources.map((resource) => {
    const told = zone.resources[resource];
    return { num: told ? `${amount(resource, told.free)} of ${amount(resource, told.allocatable)}` : "–" };
  })]);
  return h("section", {}, h("h3", {}, "Free, as the node reports"),
    table("Free, as the node reports", ["Zone", ...resources.map((name) => ({ num: shortResource(name) }))], rows));
}

/** @param {any} holder */
function held(holder) {
  return holder.memory.map((/** @type {any} */ block) =>
    h("div", {}, `${bytes(block.size)}${block.type === "memory" ? "" : ` ${block.type}`} on ${block.numa.join("+")}`));
}

/** @param {any} holder */
function devices(holder) {
  return Object.values(holder.devices).flat().join(", ");
}

/** @param {any} node */
function settings(node) {
  const options = (/** @type {Record<string, string>} */ map) => Object.entries(map).map(([key, value]) => `${key}=${value}`).join(", ");
  const entries = [
    ["Kubelet", node.kubelet_version], ["CPU manager", node.cpu_policy], ["CPU manager options", options(node.cpu_options)],
    ["Memory manager", node.memory_policy], ["Topology policy", node.topology_policy], ["Topology scope", node.topology_scope],
    ["Topology options", options(node.topology_options)], ["Reserved CPUs", node.reserved_cpus],
    ["Shared pool", node.shared_cpus], ["Boot", node.boot_id], ["Report", String(node.sequence)],
    ["Reported", new Date(node.observed_at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC"],
  ];
  return h("details", {}, h("summary", {}, "Configuration"),
    h("dl", { class: "settings" }, entries.filter(([, value]) => value).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}
