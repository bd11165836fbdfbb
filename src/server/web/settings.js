// What is sent with every message, and the dialog for it.

import { apiKey, load, save, setApiKey } from "./storage.js";

const STORED = "lapidary.settings";
const EMPTY = { system: "", fields: {}, stop: "", more: "" };

export let settings = { ...EMPTY, ...load(STORED, {}) };

// The fields of a request that the settings ask for; what is not set is the model's own.
export function requestFields() {
  const stop = settings.stop.split("\n").filter((line) => line !== "");
  return {
    ...settings.fields,
    ...(stop.length ? { stop } : {}),
    ...(settings.more.trim() ? JSON.parse(settings.more) : {}),
  };
}

function checkMore(area) {
  let problem = "";
  if (area.value.trim()) {
    try {
      const value = JSON.parse(area.value);
      if (value === null || typeof value !== "object" || Array.isArray(value)) problem = "Wanted: a JSON object";
      else if ("messages" in value || "stream" in value) problem = "messages and stream are the page's own";
    } catch (error) {
      problem = `Not JSON: ${error.message}`;
    }
  }
  area.setCustomValidity(problem);
}

const numbers = (form) => [...form.querySelectorAll("input[type=number]")];

function fill(form, from) {
  form.elements.system.value = from.system;
  form.elements.stop.value = from.stop;
  form.elements.more.value = from.more;
  for (const input of numbers(form)) input.value = from.fields[input.name] ?? "";
  checkMore(form.elements.more);
}

function read(form) {
  const set = numbers(form).filter((input) => input.value !== "");
  return {
    system: form.elements.system.value,
    stop: form.elements.stop.value,
    more: form.elements.more.value,
    fields: Object.fromEntries(set.map((input) => [input.name, input.valueAsNumber])),
  };
}

// Calls `changed` when the key to the server is another than before.
export function setUpSettings(dialog, opener, changed) {
  const form = dialog.querySelector("form");
  opener.addEventListener("click", () => {
    fill(form, settings);
    form.elements.key.value = apiKey();
    dialog.showModal();
  });
  form.elements.more.addEventListener("input", () => checkMore(form.elements.more));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    settings = read(form);
    save(STORED, settings);
    const key = form.elements.key.value.trim();
    const another = key !== apiKey();
    setApiKey(key);
    dialog.close();
    if (another) changed();
  });
  dialog.querySelector("#settings-reset").addEventListener("click", () => fill(form, EMPTY));
  dialog.querySelector("#settings-cancel").addEventListener("click", () => dialog.close());
}
