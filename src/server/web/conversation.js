// The conversation: messages, how they are sent, and how they are kept.
//
// user:      {role, content}
// assistant: {role, content, reasoning, calls: [{id, name, arguments}], end, error, stats}
//            end: "" while it is written, finish_reason, "stopped" by the reader, or "failed" (`error` says why)
// tool:      {role, content, id, name}: the result of a call

import { load, save } from "./storage.js";

const STORED = "lapidary.conversation";

export function newAnswer() {
  return { role: "assistant", content: "", reasoning: "", calls: [], end: "", error: "", stats: null };
}

function isMessage(message) {
  return ["user", "assistant", "tool"].includes(message?.role) && typeof message.content === "string" &&
    (message.role !== "assistant" || (typeof message.reasoning === "string" && Array.isArray(message.calls)));
}

// An answer as it is sent back; null for one that says nothing.
function sentAnswer(message) {
  const sent = { role: "assistant", content: message.content };
  if (message.reasoning) sent.reasoning_content = message.reasoning;
  // A call that was cut is no call.
  if (message.end === "tool_calls") {
    sent.tool_calls = message.calls.map(({ id, name, arguments: text }) =>
      ({ id, type: "function", function: { name, arguments: text } }));
  }
  return sent.content || sent.tool_calls ? sent : null;
}

export class Conversation {
  constructor() {
    const kept = load(STORED, []);
    this.messages = Array.isArray(kept) && kept.every(isMessage) ? kept : [];
    for (const message of this.messages) {
      // The page was closed while it was written.
      if (message.role === "assistant" && message.end === "") message.end = "stopped";
    }
  }

  // False when the browser has no room for it.
  keep() {
    return save(STORED, this.messages);
  }

  clear() {
    this.messages = [];
    this.keep();
  }

  // Forgets the message and all behind it.
  cut(message) {
    const at = this.messages.indexOf(message);
    if (at >= 0) this.messages.length = at;
  }

  last() {
    return this.messages.at(-1);
  }

  // As the API wants them.
  sent(system) {
    const sent = system.trim() ? [{ role: "system", content: system }] : [];
    for (const message of this.messages) {
      if (message.role === "user") sent.push({ role: "user", content: message.content });
      if (message.role === "tool") sent.push({ role: "tool", tool_call_id: message.id, content: message.content });
      const answer = message.role === "assistant" && sentAnswer(message);
      if (answer) sent.push(answer);
    }
    return sent;
  }
}
