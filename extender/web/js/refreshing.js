// How often parts of the page are loaded again.
import { ApiError } from "./api.js";
import { fill, h } from "./dom.js";

/** Between two requests for the same part. */
export const REFRESH_MS = 5000;

/** Refresh at once, and again and again until the signal aborts. @param {() => void} refresh @param {AbortSignal} signal */
export function keepFresh(refresh, signal) {
  refresh();
  const timer = setInterval(refresh, REFRESH_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** @type {WeakMap<HTMLElement, ReturnType<typeof setTimeout>>} */
const timers = new WeakMap();

/**
 * Show a section, and refresh its list again and again while it is shown. An error of the service takes the list's place.
 * @param {HTMLElement} side @param {HTMLElement} section @param {HTMLElement} list @param {() => Promise<void>} refresh
 */
export function showFresh(side, section, list, refresh) {
  fill(side, section);
  load(section, list, refresh);
}

/** @param {HTMLElement} section @param {HTMLElement} list @param {() => Promise<void>} refresh */
async function load(section, list, refresh) {
  clearTimeout(timers.get(section));
  try {
    if (!document.hidden || !list.hasChildNodes()) await refresh();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(list, h("p", { class: "error", role: "alert" }, error.message));
  }
  if (section.isConnected) timers.set(section, setTimeout(() => load(section, list, refresh), REFRESH_MS));
}
