// Light or dark: what the system says, unless the reader said otherwise. Runs before the page is shown, so it is no module.
"use strict";

(() => {
  const STORED = "lapidary.theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;

  let chosen = null;
  try {
    chosen = localStorage.getItem(STORED);
  } catch {
    // Nothing is kept here.
  }

  const systemTheme = () => (system.matches ? "dark" : "light");
  const theme = () => (chosen === "dark" || chosen === "light" ? chosen : systemTheme());

  function show() {
    root.dataset.theme = theme();
    const button = document.getElementById("theme");
    if (!button) return;
    const other = theme() === "dark" ? "light" : "dark";
    button.setAttribute("aria-label", `Switch to the ${other} theme`);
    button.title = `Switch to the ${other} theme`;
  }

  function change() {
    const wanted = theme() === "dark" ? "light" : "dark";
    // Back at what the system says, follow it again.
    chosen = wanted === systemTheme() ? null : wanted;
    try {
      if (chosen) localStorage.setItem(STORED, chosen);
      else localStorage.removeItem(STORED);
    } catch {
      // It holds for now.
    }
    show();
  }

  show();
  system.addEventListener("change", show);
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", change);
    show();
  });
})();
