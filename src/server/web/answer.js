// One answer while it is written: chunks of the stream put together, and its times.

export class AnswerReader {
  constructor(message) {
    this.message = message;
    this.began = performance.now();
    this.first = this.latest = this.contentBegan = 0;
    this.tokens = this.firstTokens = 0;
    this.usage = null;
  }

  // Returns the texts that came: {reasoning, content}.
  take(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices.find((one) => one.index === 0);
    if (!choice) return { reasoning: "", content: "" };
    const now = performance.now();
    if (choice.token_ids?.length) {
      if (!this.first) {
        this.first = now;
        this.firstTokens = choice.token_ids.length;
      }
      this.latest = now;
      this.tokens += choice.token_ids.length;
    }
    const reasoning = choice.delta.reasoning_content ?? "";
    const content = choice.delta.content ?? "";
    const calls = choice.delta.tool_calls ?? [];
    if (content || calls.length) this.contentBegan ||= now;
    this.message.reasoning += reasoning;
    this.message.content += content;
    for (const part of calls) this.takeCall(part);
    if (choice.finish_reason) this.message.end = choice.finish_reason;
    return { reasoning, content };
  }

  takeCall(part) {
    const call = (this.message.calls[part.index] ??= { id: "", name: "", arguments: "" });
    call.id += part.id ?? "";
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }

  // The speed is that of all tokens behind the first ones.
  stats() {
    const tokens = this.usage?.completion_tokens ?? this.tokens;
    const seconds = (this.latest - this.first) / 1000;
    const thought = this.message.reasoning ? ((this.contentBegan || this.latest) - this.first) / 1000 : 0;
    return {
      tokens,
      perSecond: tokens > this.firstTokens && seconds > 0 ? (tokens - this.firstTokens) / seconds : 0,
      firstSeconds: this.first ? (this.first - this.began) / 1000 : 0,
      thoughtSeconds: thought,
      promptTokens: this.usage?.prompt_tokens ?? 0,
      cachedTokens: this.usage?.prompt_tokens_details?.cached_tokens ?? 0,
    };
  }
}
