// Where the service wants to know who asks: a bearer token, kept for as long as the tab is open.
import { byId } from "./dom.js";

const KEPT = "numa-extender-token";

/** The header that proves who asks, if a token was given. @returns {Record<string, string>} */
export function credentials() {
  const token = sessionStorage.getItem(KEPT);
  return token ? { Authorization: `Bearer ${token}` } : {};
}

/** Ask for a token, and say why the last one did not do. @param {string} reason in the words of the service */
export function askForToken(reason) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("signin"));
  byId("signin-reason").textContent = reason;
  if (!dialog.open) dialog.showModal();
}

byId("signin-later").addEventListener("click", () => {
  /** @type {HTMLDialogElement} */ (byId("signin")).close();
});

const form = /** @type {HTMLFormElement} */ (byId("signin-form"));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const token = /** @type {HTMLInputElement} */ (byId("token")).value.trim();
  if (token) sessionStorage.setItem(KEPT, token);
  else sessionStorage.removeItem(KEPT);
  location.reload();
});
