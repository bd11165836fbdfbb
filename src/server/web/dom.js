// Makes an element. Children that are strings become text nodes.
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

export function button(label, onClick, attributes = {}) {
  const node = el("button", { type: "button", ...attributes }, label);
  node.addEventListener("click", onClick);
  return node;
}

// Browsers let pages use the clipboard only over TLS and on this machine.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "offscreen", "aria-hidden": "true" });
    area.value = text;
    const focused = document.activeElement;
    (focused?.closest("dialog") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return done;
  }
}

// Tells on the button itself whether it worked.
export async function copyWith(node, text) {
  const label = node.dataset.label ?? (node.dataset.label = node.textContent);
  node.textContent = (await copyText(text)) ? "Copied" : "Not copied";
  setTimeout(() => (node.textContent = label), 1500);
}
