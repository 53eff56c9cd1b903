// The service's own HTTP API, and its errors (RFC 9457) with the path of the faulty field.

import { askForToken, credentials } from "./signin.js";

export class ApiError extends Error {
  /** @param {string} detail @param {number} status @param {string | null} field */
  constructor(detail, status, field) {
    super(detail);
    this.status = status;
    this.field = field;
  }
}

const MAX_TRIES = 4; // of a question that the service takes for one too many

/** @typedef {{method?: string, body?: string, type?: string, accept?: string, signal?: AbortSignal}} Options */

/** The JSON of an answer. @param {string} path @param {Options} [options] @returns {Promise<any>} */
export async function call(path, options = {}) {
  return answer(path, options, (response) => response.json().catch(() => null));
}

/** The documents of an answer of JSON lines. @param {string} path @param {Options} options @returns {Promise<any[]>} */
export async function callLines(path, options) {
  const lines = await answer(path, options, async (response) => (await response.text()).trim().split("\n").map((line) => JSON.parse(line)));
  const { problem } = lines[lines.length - 1];
  if (problem) throw new ApiError(`The answer is not complete: ${problem.detail}`, problem.status, null);
  return lines;
}

/** @param {string} path @param {Options} options @param {(response: Response) => Promise<any>} read of a successful response; null: it cannot be read */
async function answer(path, options, read) {
  for (let tries = 1; ; tries++) {
    const response = await send(path, options);
    if (response.status === 429 && tries < MAX_TRIES) {
      await pause(Number(response.headers.get("Retry-After")) || 1);
      continue;
    }
    const document = await (response.ok ? read(response) : response.json().catch(() => null));
    if (response.ok && document !== null) return document;
    const detail = document?.detail ?? `The service answered ${response.status}.`;
    if (response.status === 401 || response.status === 403) askForToken(detail);
    throw new ApiError(detail, response.status, document?.field ?? null);
  }
}

/** When the service answered for the last time. */
let answeredAt = new Date();

/** @param {boolean} isAway */
function tellAway(isAway) {
  if (!isAway) answeredAt = new Date();
  document.dispatchEvent(new CustomEvent("away", { detail: { since: isAway ? answeredAt : null } }));
}

/** @param {string} path @param {Options} options */
async function send(path, { method = "GET", body, type, accept = "application/json", signal }) {
  try {
    const headers = { Accept: accept, ...credentials(), ...(type ? { "Content-Type": type } : {}) };
    const response = await fetch(path, { method, body, headers, signal: signal ?? null });
    tellAway(false);
    return response;
  } catch (error) {
    if (signal?.aborted) throw error;
    tellAway(true);
    throw new ApiError("The service does not answer. Is it running?", 0, null);
  }
}

/** @param {number} seconds */
function pause(seconds) {
  return new Promise((resolve) => { setTimeout(resolve, seconds * 1000); });
}

const INDENT = 4;

/**
 * Ask a question about a pasted manifest: JSON is sent as JSON, YAML as YAML, indented below its key.
 * Errors have the path, line and column of the manifest.
 * @param {string} path
 * @param {"pod" | "pods"} key of the question; "pods" takes a list
 * @param {string} manifest
 * @param {Record<string, unknown>} rest of the question
 * @param {AbortSignal} [signal]
 */
export async function ask(path, key, manifest, rest, signal) {
  return asking(key, manifest, rest, (question) => call(path, { ...question, signal }));
}

/**
 * The last document of an answer of JSON lines about a pasted manifest.
 * @param {string} path
 * @param {"pod" | "pods"} key of the question
 * @param {string | null} manifest null: the question has none
 * @param {Record<string, unknown>} rest of the question
 * @param {(document: any) => void} onLine called for each document as it arrives
 * @param {AbortSignal} [signal]
 */
export async function askLines(path, key, manifest, rest, onLine, signal) {
  const send = (/** @type {Options} */ question) =>
    answer(path, { ...question, signal, accept: "application/x-ndjson" }, (response) => lastLine(response, onLine));
  if (manifest === null) return send({ method: "POST", body: JSON.stringify(rest), type: "application/json" });
  return asking(key, manifest, rest, send);
}

/** @param {Response} response @param {(document: any) => void} onLine @returns {Promise<any>} */
async function lastLine(response, onLine) {
  const reader = /** @type {ReadableStream<any>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  let last = null;
  for (let text = "", piece = await reader.read(); ; piece = await reader.read()) {
    const lines = (text + (piece.value ?? "")).split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) onLine(last = JSON.parse(line));
    if (piece.done) break;
  }
  if (last?.problem) throw new ApiError(last.problem.detail, last.problem.status, null);
  return last;
}

/** @param {"pod" | "pods"} key @param {string} manifest @param {Record<string, unknown>} rest @param {(question: Options) => Promise<any>} send */
async function asking(key, manifest, rest, send) {
  const json = parseJson(manifest);
  const isList = key === "pods";
  const head = isList ? "pods:\n  -\n" : "pod:\n";
  const body = json !== undefined
    ? JSON.stringify({ ...rest, [key]: isList ? [json] : json })
    : head + indented(manifest) + Object.entries(rest).map(([name, value]) => `\n${name}: ${JSON.stringify(value)}`).join("");
  try {
    return await send({ method: "POST", body, type: `application/${json === undefined ? "yaml" : "json"}` });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const lines = json === undefined ? head.split("\n").length - 1 : 0;
    throw new ApiError(inManifest(error, lines), error.status, error.field);
  }
}

/** @param {string} text */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The only YAML document, with unchanged line numbers. @param {string} manifest */
function indented(manifest) {
  const documents = manifest.split(/^---.*$/m).filter((text) => text.replaceAll(/^\s*#.*$/gm, "").trim());
  if (documents.length > 1) throw new ApiError(`Paste one document: there are ${documents.length}.`, 0, null);
  return manifest.replaceAll(/^(---|\.\.\.).*$/gm, "").replaceAll(/^/gm, " ".repeat(INDENT));
}

/** @param {ApiError} error @param {number} lines before the manifest; 0: it was JSON */
function inManifest({ message, field }, lines) {
  const key = /^pods?(\[0\]|\.0)?(\.|: |$)/;
  const path = (field ?? "").replace(key, "");
  const detail = message.replace(key, "").replace(/line (\d+), column (\d+)/, (_, line, column) =>
    `line ${Number(line) - lines}, column ${Math.max(1, Number(column) - (lines ? INDENT : 0))}`);
  return path && !detail.startsWith(path) ? `${path}: ${detail}` : detail;
}
