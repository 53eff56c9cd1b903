// Sign-in with a bearer token, which is kept until the tab is closed.
import { byId } from "./dom.js";

const KEPT = "numa-extender-token";

/** The header with the token, if there is one. @returns {Record<string, string>} */
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
