// The server's API. Paths are relative, so that a proxy may put the page anywhere.

import { apiKey } from "./storage.js";

// What the reader shall be told. `kind`: "refused" (the server says why), "unreachable", or "lost" (in the middle of an answer).
export class Failure extends Error {
  constructor(kind, message, status = 0) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

function headers(more = {}) {
  const key = apiKey();
  return key ? { Authorization: `Bearer ${key}`, ...more } : more;
}

async function ask(path, options = {}) {
  try {
    return await fetch(path, { cache: "no-store", ...options, headers: headers(options.headers) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("unreachable", "The server cannot be reached. Is it running?");
  }
}

async function failureOf(response) {
  let message = "";
  try {
    message = (await response.json()).error?.message ?? "";
  } catch {
    // Not from this server: a proxy between, which says what it says.
  }
  if (!message) message = `The server answered with status ${response.status}.`;
  const wait = response.headers.get("Retry-After");
  if (response.status === 429) message = `The server is busy: ${message}${wait ? `. Try again in ${wait} s.` : ""}`;
  return new Failure("refused", message, response.status);
}

// The first model: {id, max_model_len}.
export async function getModel() {
  const response = await ask("v1/models");
  if (!response.ok) throw await failureOf(response);
  return (await response.json()).data[0];
}

async function* linesOf(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    while (true) {
      const { done, value } = await reader.read();
      const lines = (rest + decoder.decode(value, { stream: !done })).split("\n");
      rest = lines.pop();
      yield* lines;
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Chunks of a streamed chat completion. Throws Failure, and AbortError when `signal` says so.
export async function* streamChat(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  if (!response.ok) throw await failureOf(response);
  try {
    for await (const line of linesOf(response)) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Failure("refused", chunk.error.message);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof Failure || error.name === "AbortError") throw error;
  }
  throw new Failure("lost", "The connection was lost before the end of the answer.");
}
