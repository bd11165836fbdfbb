// The page: what the reader does, and one answer at a time.

import { AnswerReader } from "./answer.js";
import { Failure, getModel, streamChat } from "./api.js";
import { Conversation, newAnswer } from "./conversation.js";
import { copyWith } from "./dom.js";
import { requestFields, settings, setUpSettings } from "./settings.js";
import { apiKey, load, save, setApiKey } from "./storage.js";
import { AnswerView, viewOf } from "./views.js";

const part = (id) => document.getElementById(id);
const log = part("log");
const list = part("messages");
const prompt = part("prompt");

const conversation = new Conversation();
const views = new WeakMap();  // by message
let running = null;  // {message, abort, done}
let model = null;
let leaving = false;  // what fails then is no news

// Screen readers hear this; the answer itself is read when it is complete.
const announce = (text) => (part("status").textContent = text);

// --- Where the log stands.

let follow = true;
let lastTop = 0;

function keepUp() {
  if (follow) log.scrollTop = log.scrollHeight;
  lastTop = log.scrollTop;
  part("jump").hidden = follow;
}

log.addEventListener("scroll", () => {
  // What grows below is no reason to stay behind; scrolling up is.
  const near = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
  follow = near || (follow && log.scrollTop >= lastTop);
  lastTop = log.scrollTop;
  part("jump").hidden = follow;
}, { passive: true });
new ResizeObserver(keepUp).observe(log);
part("jump").addEventListener("click", () => {
  follow = true;
  keepUp();
  log.focus();
});

// --- Messages.

const actions = {
  async resend(message, text) {
    await stop();
    conversation.cut(message);
    say(text);
  },
  async again(message) {
    await stop();
    conversation.cut(message);
    redraw();
    answer();
  },
  async result(message, texts) {
    await stop();
    message.calls.forEach((call, i) =>
      conversation.messages.push({ role: "tool", content: texts[i], id: call.id, name: call.name }));
    redraw();
    answer();
  },
};

function redraw() {
  const { messages } = conversation;
  list.replaceChildren(...messages.map((message, i) => {
    const last = i === messages.length - 1;
    if (!views.has(message)) views.set(message, viewOf(message, actions, last));
    const view = views.get(message);
    if (!last) view.form?.remove();
    return view.node;
  }));
  document.body.classList.toggle("empty", messages.length === 0);
  keepUp();
}

function keep() {
  if (leaving || conversation.keep()) return;
  part("context").textContent = "Not kept: this browser has no room for it";
}

function say(text) {
  conversation.messages.push({ role: "user", content: text });
  keep();
  follow = true;
  redraw();
  answer();
}

// --- The answer.

function requestBody() {
  const fields = requestFields();
  if (part("think").checked) {
    fields.chat_template_kwargs = { enable_thinking: true, ...fields.chat_template_kwargs };
  }
  return { messages: conversation.sent(settings.system), return_token_ids: true, ...fields };
}

function setRunning(state) {
  running = state;
  part("send").hidden = state !== null;
  part("stop").hidden = state === null;
  document.body.classList.toggle("busy", state !== null);
}

async function receive(message, view, signal) {
  const reader = new AnswerReader(message);
  let frame = 0;
  const draw = () => {
    frame = 0;
    message.stats = reader.stats();
    view.draw(message.stats);
    keepUp();
  };
  try {
    for await (const chunk of streamChat(requestBody(), signal)) {
      view.take(reader.take(chunk));
      frame ||= requestAnimationFrame(draw);
    }
    message.end ||= "stop";
    return reader;
  } catch (error) {
    message.end = error.name === "AbortError" ? "stopped" : "failed";
    if (message.end === "stopped") return reader;
    if (!(error instanceof Failure)) console.error(error);
    message.error = error.message;
    if (error.kind === "unreachable") showModel();
    if (error.status === 401) askForKey(() => actions.again(message));
    return reader;
  } finally {
    cancelAnimationFrame(frame);
    message.stats = reader.stats();
  }
}

function showContext(reader) {
  const used = reader.usage?.total_tokens;
  if (!used || !model) return;
  part("context").textContent = `${used.toLocaleString("en")} / ${model.max_model_len.toLocaleString("en")} tokens`;
}

const SPOKEN = {
  stopped: "Stopped.",
  failed: "The answer failed.",
  length: "The answer was cut off.",
  tool_calls: "The model calls a tool.",
};

async function answer() {
  const message = newAnswer();
  const view = new AnswerView(message, actions);
  views.set(message, view);
  const abort = new AbortController();
  list.append(view.node);
  keepUp();
  let done;
  setRunning({ message, abort, done: new Promise((resolve) => (done = resolve)) });
  announce("Answering.");
  const reader = await receive(message, view, abort.signal);
  // Not before: what is sent are the messages before it.
  conversation.messages.push(message);
  view.finish(true);
  keepUp();
  showContext(reader);
  keep();
  setRunning(null);
  announce(SPOKEN[message.end] ?? "The answer is complete.");
  done();
  if (!model) showModel();
}

async function stop() {
  if (!running) return;
  running.abort.abort();
  await running.done;
}

// --- Writing.

// Where there is a keyboard on the glass, its Enter begins a line.
const touch = matchMedia("(hover: none) and (pointer: coarse)");

function fitPrompt() {
  if (CSS.supports("field-sizing", "content")) return;
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

part("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value;
  if (!text.trim()) return;
  if (running) return announce("Wait for the answer, or stop it.");
  prompt.value = "";
  fitPrompt();
  if (!touch.matches) prompt.focus();
  say(text);
});
prompt.addEventListener("input", fitPrompt);
prompt.addEventListener("keydown", (event) => {
  if (event.isComposing || event.keyCode === 229) return;  // Enter ends what an input method composes
  if (event.key === "Enter" && !event.shiftKey && !touch.matches) {
    event.preventDefault();
    part("composer").requestSubmit();
  } else if (event.key === "ArrowUp" && prompt.value === "") {
    const edits = list.querySelectorAll(".user .actions button:first-child");
    edits[edits.length - 1]?.click();
    event.preventDefault();
  }
});
part("stop").addEventListener("click", () => {
  stop();
  if (!touch.matches) prompt.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) stop();
});
document.addEventListener("click", (event) => {
  const copy = event.target.closest?.("button.copy");
  if (copy) copyWith(copy, copy.closest(".code").querySelector("pre code").textContent);
});

// --- Dialogs.

function askForKey(then) {
  const dialog = part("key-dialog");
  if (dialog.open) return;
  const form = dialog.querySelector("form");
  form.elements.key.value = "";
  part("key-wrong").hidden = !apiKey();
  form.onsubmit = (event) => {
    event.preventDefault();
    setApiKey(form.elements.key.value.trim());
    dialog.close();
    then();
  };
  dialog.showModal();
}
part("key-cancel").addEventListener("click", () => part("key-dialog").close());

const clearDialog = part("clear-dialog");
part("clear").addEventListener("click", () => {
  if (conversation.messages.length > 0 || running) clearDialog.showModal();
});
part("clear-cancel").addEventListener("click", () => clearDialog.close());
clearDialog.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  clearDialog.close();
  await stop();
  conversation.clear();
  redraw();
  part("context").textContent = "";
  announce("New conversation.");
  prompt.focus();
});

setUpSettings(part("settings-dialog"), part("settings"), () => showModel());

// --- Start.

async function showModel() {
  try {
    model = await getModel();
    part("model").textContent = model.id;
    document.title = `${model.id} · lapidary`;
    document.body.classList.remove("offline");
  } catch (error) {
    model = null;
    part("model").textContent = error.status === 401 ? "locked" : "not reachable";
    document.body.classList.add("offline");
    if (error.status === 401) askForKey(showModel);
  }
}

part("think").checked = load("lapidary.think", false);
part("think").addEventListener("change", () => save("lapidary.think", part("think").checked));
window.addEventListener("online", () => model || showModel());
window.addEventListener("pagehide", () => {
  if (!running) return;
  conversation.messages.push({ ...running.message, end: "stopped" });
  keep();
  conversation.messages.pop();
  leaving = true;
  running.abort.abort();
});
window.addEventListener("pageshow", () => (leaving = false));

redraw();
fitPrompt();
showModel();
if (!touch.matches) prompt.focus();
