// Light or dark: the system's setting until the user presses the button. A classic script, so that the page does not flash.
(() => {
  const key = "numa-extender-theme";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paths = {
    light: "M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6 7 7M17 17l1.4 1.4M18.4 5.6 17 7M7 17l-1.4 1.4M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0",
    dark: "M20 14.5A8 8 0 0 1 9.5 4 8 8 0 1 0 20 14.5",
  };

  const stored = () => { try { return localStorage.getItem(key); } catch { return null; } };
  const current = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  const chosen = stored();
  if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

  function show() {
    const button = document.getElementById("theme");
    if (!button) return;
    const other = current() === "dark" ? "light" : "dark";
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("class", "icon");
    svg.setAttribute("aria-hidden", "true");
    const path = svg.appendChild(document.createElementNS(svg.namespaceURI ?? "", "path"));
    path.setAttribute("d", paths[other]);
    button.replaceChildren(svg);
    button.setAttribute("aria-label", `Use the ${other} theme`);
    button.title = `Use the ${other} theme`;
  }

  function tell() {
    show();
    document.dispatchEvent(new Event("themechange"));
  }

  dark.addEventListener("change", tell);
  document.addEventListener("DOMContentLoaded", () => {
    show();
    document.getElementById("theme")?.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      try { localStorage.setItem(key, root.dataset.theme); } catch { /* private windows may refuse */ }
      tell();
    });
  });
})();
