// The pasted manifest with other amounts in one container: YAML keeps its lines and comments, JSON is formatted again.

/** @typedef {{resource: string, amount: string}} Change */

/**
 * What a suggestion changes in the pod; empty: it changes the node, or its words are not understood.
 * @param {{resource: string | null, instead: string, container: string | null}} suggestion
 * @returns {Change[]}
 */
export function changesOf({ resource, instead, container }) {
  if (container === null) return [];
  if (resource !== null) return [{ resource, amount: instead }];
  const changes = instead.split(" and ").map((text) => {
    const [, amount, words] = /^(\S+) (?:of )?(\S+)$/.exec(text) ?? [];
    return { resource: words === "CPUs" ? "cpu" : words, amount };
  });
  return changes.every((change) => change.resource) ? changes : [];
}

/**
 * The manifest with these amounts, or null if the container or an amount is not found in it.
 * @param {string} manifest
 * @param {string} container
 * @param {Change[]} changes
 * @returns {string | null}
 */
export function withChanges(manifest, container, changes) {
  if (!changes.length) return null;
  const document = parsed(manifest);
  return document === undefined ? changedYaml(manifest, container, changes) : changedJson(document, container, changes);
}

/** @param {string} text @returns {unknown} undefined: no JSON */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** @param {unknown} document @param {string} container @param {Change[]} changes */
function changedJson(document, container, changes) {
  let found = 0;
  const visit = (/** @type {any} */ value) => {
    if (value === null || typeof value !== "object") return;
    if (!Array.isArray(value) && value.name === container && value.resources) {
      for (const amounts of [value.resources.requests, value.resources.limits]) {
        for (const { resource, amount } of changes) {
          if (amounts && resource in amounts) {
            amounts[resource] = amount;
            found++;
          }
        }
      }
    }
    for (const each of Object.values(value)) visit(each);
  };
  visit(document);
  return found >= changes.length ? JSON.stringify(document, null, 2) : null;
}

/** @param {string} manifest @param {string} container @param {Change[]} changes */
function changedYaml(manifest, container, changes) {
  const lines = manifest.split("\n");
  const range = containerLines(lines, container);
  if (!range) return null;
  const found = new Set();
  for (let i = range.first; i < range.last; i++) {
    for (const { resource, amount } of changes) {
      const key = resource.replaceAll(/[.*+?^${}()|[\]\\/]/g, "\\$&");
      const entry = new RegExp(`(^|[{,\\s])(["']?)(${key})\\2(\\s*:\\s*)(["']?)[^\\s"',}#]+\\5`, "g");
      const changed = lines[i].replace(entry, (_, before, quote, name, colon) => `${before}${quote}${name}${quote}${colon}"${amount}"`);
      if (changed !== lines[i]) found.add(resource);
      lines[i] = changed;
    }
  }
  return found.size === changes.length ? lines.join("\n") : null;
}

/** The lines of `resources` of a container: the item of a list with this name. @param {string[]} lines @param {string} container */
function containerLines(lines, container) {
  const named = new RegExp(`^\\s*(?:- )?name:\\s*(["']?)${container.replaceAll("-", "\\-")}\\1\\s*(#.*)?$`);
  for (let i = 0; i < lines.length; i++) {
    const dash = /^(\s*)- /.exec(lines[i]);
    if (!dash) continue;
    const inner = dash[1].length + 2;
    const last = endOf(lines, i, inner);
    const own = (/** @type {string} */ line) => indentOf(line.replace(/^(\s*)- /, "$1  ")) === inner;
    const item = lines.slice(i, last);
    const resources = item.findIndex((line) => own(line) && /^\s*(- )?resources:/.test(line));
    if (resources >= 0 && item.some((line) => own(line) && named.test(line))) {
      return { first: i + resources, last: endOf(lines, i + resources, inner + 1) };
    }
  }
  return null;
}

/** The first line after *start* that is indented less than *indent*. @param {string[]} lines @param {number} start @param {number} indent */
function endOf(lines, start, indent) {
  let i = start + 1;
  while (i < lines.length && (!lines[i].trim() || lines[i].trim().startsWith("#") || indentOf(lines[i]) >= indent)) i++;
  return i;
}

/** @param {string} line */
function indentOf(line) {
  return line.length - line.trimStart().length;
}

/**
 * The lines that differ, as pairs.
 * @param {string} before
 * @param {string} after
 */
export function differences(before, after) {
  const [old, changed] = [linesOf(before), linesOf(after)];
  return changed.flatMap((line, i) => (line === old[i] ? [] : [{ before: old[i]?.trim() ?? "", after: line.trim() }]));
}

/** JSON is compared as it is written anew. @param {string} text */
function linesOf(text) {
  const document = parsed(text);
  return (document === undefined ? text : JSON.stringify(document, null, 2)).split("\n");
}
