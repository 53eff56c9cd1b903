// How often parts of the page are loaded again.

/** Between two requests for the same part. */
export const REFRESH_MS = 5000;

/** Refresh at once, and again and again until the signal aborts. @param {() => void} refresh @param {AbortSignal} signal */
export function keepFresh(refresh, signal) {
  refresh();
  const timer = setInterval(refresh, REFRESH_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
}
