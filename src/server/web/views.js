// Messages as they are shown.

import { button, copyWith, el } from "./dom.js";
import { MarkdownStream } from "./stream.js";

const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const round = (value) => (value < 100 ? tenths : whole).format(value);
const seconds = (value) => (value < 1 ? `${whole.format(1000 * value)} ms` : `${round(value)} s`);
const count = (value, one, many) => `${round(value)} ${value === 1 ? one : many}`;

const ENDS = {
  length: "Cut off here: the answer reached its most tokens, or the context is full.",
  stopped: "Stopped.",
};

function statsText(stats, promptToo) {
  if (!stats?.tokens) return "";
  const parts = [count(stats.tokens, "token", "tokens")];
  if (stats.perSecond) parts.push(`${round(stats.perSecond)} tokens/s`);
  if (promptToo && stats.firstSeconds) parts.push(`first after ${seconds(stats.firstSeconds)}`);
  if (promptToo && stats.promptTokens) {
    const cached = stats.cachedTokens ? `, ${round(stats.cachedTokens)} cached` : "";
    parts.push(`prompt ${round(stats.promptTokens)}${cached}`);
  }
  return parts.join(" · ");
}

function thoughtLabel(message) {
  if (message.end === "" && !message.content && message.calls.length === 0) return "Thinking…";
  const time = message.stats?.thoughtSeconds;
  return time ? `Thought for ${seconds(time)}` : "Thought";
}

function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// Text below the fold: what a call was given, what came back.
function folded(label, name, text) {
  const code = el("code", {}, text);
  const title = el("summary", {}, `${label} `, el("code", {}, name));
  return { node: el("details", { class: "call" }, title, el("pre", { tabindex: "0" }, code)), code };
}

// A form in place of a message. Enter sends, Esc gives up.
export function editForm(text, send, cancel) {
  const area = el("textarea", { "aria-label": "Edit the message", rows: "1" });
  area.value = text;
  const form = el("form", { class: "edit" }, area, el("div", { class: "row" },
    button("Cancel", cancel), el("button", { type: "submit", class: "primary" }, "Send")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (area.value.trim()) send(area.value);
  });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (event.key === "Enter" && event.target === area && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  return { form, area };
}

export class UserView {
  // actions: {resend(message, text)}
  constructor(message, actions) {
    this.message = message;
    this.bubble = el("div", { class: "bubble" }, message.content);
    this.editButton = button("Edit", () => this.edit(actions));
    const copy = button("Copy", () => copyWith(copy, message.content));
    this.actions = el("div", { class: "actions" }, this.editButton, copy);
    this.node = el("article", { class: "message user", "aria-label": "You" }, this.bubble, this.actions);
  }

  edit(actions) {
    const { form, area } = editForm(this.message.content, (text) => actions.resend(this.message, text), () => {
      form.replaceWith(this.bubble);
      this.actions.hidden = false;
      this.editButton.focus();
    });
    this.bubble.replaceWith(form);
    this.actions.hidden = true;
    area.rows = Math.min(12, area.value.split("\n").length + 1);
    area.focus();
  }
}

export class ToolView {
  constructor(message) {
    this.node = el("article", { class: "message tool", "aria-label": "Result of a call" },
      folded("Result of", message.name, message.content).node);
  }
}

export class AnswerView {
  // actions: {again(message), result(message, texts)}
  constructor(message, actions) {
    this.message = message;
    this.on = actions;
    this.thoughtLabel = el("summary", {}, "Thinking…");
    this.thoughtBody = el("div", { class: "md" });
    this.thought = el("details", { class: "thought", hidden: "" }, this.thoughtLabel, this.thoughtBody);
    this.body = el("div", { class: "md" });
    this.calls = el("div", { class: "calls" });
    this.notes = el("div", { class: "notes" });
    this.stats = el("span", { class: "stats" });
    this.actions = el("div", { class: "actions" }, this.stats);
    this.node = el("article", { class: "message assistant", "aria-label": "Answer", "aria-busy": "true" },
      this.thought, this.body, this.calls, this.notes, this.actions);
    this.node.classList.add("waiting");
    this.thoughts = new MarkdownStream(this.thoughtBody);
    this.content = new MarkdownStream(this.body);
    this.shownCalls = [];
  }

  take({ reasoning, content }) {
    this.thoughts.append(reasoning);
    this.content.append(content);
  }

  // At most once a frame.
  draw(stats) {
    const { message } = this;
    this.node.classList.toggle("waiting", !message.content && !message.reasoning && message.calls.length === 0);
    this.thoughts.render();
    this.content.render();
    this.drawThought();
    this.drawCalls();
    this.stats.textContent = statsText(stats, false);
  }

  drawThought() {
    this.thought.hidden = !this.message.reasoning;
    const label = thoughtLabel(this.message);
    if (this.thoughtLabel.textContent !== label) this.thoughtLabel.textContent = label;
    this.thought.classList.toggle("active", label.endsWith("…"));
  }

  drawCalls() {
    this.message.calls.forEach((call, i) => {
      if (!this.shownCalls[i]) {
        this.shownCalls[i] = { ...folded("Call of", call.name, ""), length: 0 };
        this.calls.append(this.shownCalls[i].node);
      }
      const shown = this.shownCalls[i];
      shown.code.append(call.arguments.slice(shown.length));
      shown.length = call.arguments.length;
    });
  }

  // All that `message` will ever say is there. `last`: nothing stands behind it.
  finish(last) {
    const { message } = this;
    this.thoughts.finish();
    this.content.finish();
    this.drawThought();
    this.drawCalls();
    message.calls.forEach((call, i) => (this.shownCalls[i].code.textContent = prettyJson(call.arguments)));
    this.node.removeAttribute("aria-busy");
    this.node.classList.remove("waiting");
    this.stats.textContent = statsText(message.stats, true);
    const copy = button("Copy", () => copyWith(copy, message.content));
    if (message.content) this.actions.prepend(copy);
    this.actions.prepend(button("Try again", () => this.on.again(message)));
    this.note();
    if (!last || message.end !== "tool_calls") return;
    this.form = this.resultForm();
    this.notes.append(this.form);
  }

  note() {
    const { end, error } = this.message;
    if (end === "failed") this.notes.append(el("p", { class: "error", role: "alert" }, error));
    else if (ENDS[end]) this.notes.append(el("p", { class: "note" }, ENDS[end]));
  }

  resultForm() {
    const areas = this.message.calls.map((call) => el("textarea", { rows: "2", "aria-label": `Result of ${call.name}` }));
    const fields = this.message.calls.map((call, i) => el("label", {}, `Result of ${call.name}`, areas[i]));
    const form = el("form", { class: "edit results" }, ...fields, el("div", { class: "row" },
      el("button", { type: "submit", class: "primary" }, areas.length > 1 ? "Send results" : "Send result")));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.on.result(this.message, areas.map((area) => area.value));
    });
    return form;
  }
}

// A view of a message that has ended.
export function viewOf(message, actions, last) {
  if (message.role === "user") return new UserView(message, actions);
  if (message.role === "tool") return new ToolView(message);
  const view = new AnswerView(message, actions);
  view.take(message);
  view.finish(last);
  return view;
}
