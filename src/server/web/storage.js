// What the browser keeps. Without it, as in some private windows, the page works and forgets.

export function load(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

// False when the browser has no room for it.
export function save(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

// The key to the server lives as long as the tab.
const KEY = "lapidary.key";
let keyInMemory = "";

export function apiKey() {
  try {
    return sessionStorage.getItem(KEY) ?? keyInMemory;
  } catch {
    return keyInMemory;
  }
}

export function setApiKey(key) {
  keyInMemory = key;
  try {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  } catch {
    // It is in memory.
  }
}
