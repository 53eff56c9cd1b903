// The service's own HTTP API, and its errors (RFC 9457) with the path of the faulty field.

export class ApiError extends Error {
  /** @param {string} detail @param {number} status @param {string | null} field */
  constructor(detail, status, field) {
    super(detail);
    this.status = status;
    this.field = field;
  }
}

/** @typedef {{method?: string, body?: string, type?: string, signal?: AbortSignal}} Options */

/** @param {string} path @param {Options} [options] @returns {Promise<any>} */
export async function call(path, { method = "GET", body, type, signal } = {}) {
  let response;
  try {
    const headers = { Accept: "application/json", ...(type ? { "Content-Type": type } : {}) };
    response = await fetch(path, { method, body, headers, signal: signal ?? null });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The service does not answer. Is it running?", 0, null);
  }
  const document = await response.json().catch(() => null);
  if (response.ok && document !== null) return document;
  throw new ApiError(document?.detail ?? `The service answered ${response.status}.`, response.status, document?.field ?? null);
}

/**
 * A manifest as people paste it, put into a question under a key: JSON if it is JSON, else YAML, indented below the key.
 * @param {string} key
 * @param {string} manifest
 * @param {Record<string, unknown>} rest
 * @param {"value" | "item"} form whether the key takes the manifest itself or a list with it
 * @returns {Options}
 */
export function question(key, manifest, rest, form = "value") {
  const json = parseJson(manifest);
  if (json !== undefined) {
    const body = JSON.stringify({ ...rest, [key]: form === "item" ? [json] : json });
    return { method: "POST", body, type: "application/json" };
  }
  const text = manifest.replace(/^(\s*(#.*)?\n)*---[^\n]*\n/, "").replace(/\n(---|\.\.\.)\s*$/, "");
  const indented = text.replaceAll(/^/gm, "    ");
  const start = form === "item" ? `${key}:\n  -\n` : `${key}:\n`;
  const settings = Object.entries(rest).map(([name, value]) => `${name}: ${JSON.stringify(value)}\n`).join("");
  return { method: "POST", body: `${settings}${start}${indented}\n`, type: "application/yaml" };
}

/** @param {string} text */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
