// Markdown that grows: blocks that have ended are rendered once, the open one anew as it grows, code line by line. All together
// takes time linear in the text.

import { el } from "./dom.js";
import { blockAt, closesFence, codeFrame, codeLine, fenceOf, linesOf, renderBlock, renderBlocks } from "./markdown.js";

// An open block of more characters is rendered anew only when it has grown by a sixteenth, or after half a second.
const SMALL = 4096;
const LATEST_MS = 500;
// Lines of code in one element: only the last one is laid out anew.
const CODE_LINES = 64;

export class MarkdownStream {
  constructor(target) {
    this.target = target;
    this.pending = "";    // source of the open block
    this.carriage = "";   // "\r" at the end of what came: its "\n" may follow
    this.fence = null;    // the open block of code
    this.shown = 0;       // characters of `pending` when it was last rendered
    this.shown_at = 0;
    this.tail = el("div", { class: "tail" });
    target.append(this.tail);
  }

  append(text) {
    const all = this.carriage + text;
    this.carriage = all.endsWith("\r") ? "\r" : "";
    this.pending += linesOf(this.carriage ? all.slice(0, -1) : all).join("\n");
  }

  render() {
    if (this.fence) this.renderCode();
    if (this.fence) return;
    const now = performance.now();
    const due = this.pending.length < SMALL || this.pending.length > this.shown * (1 + 1 / 16) ||
      now - this.shown_at > LATEST_MS;
    if (!due || this.pending === "") return;
    this.renderOpen();
    this.shown = this.pending.length;
    this.shown_at = now;
  }

  // Nothing more comes.
  finish() {
    this.render();
    if (this.fence) {
      const ends = this.pending === "" || closesFence(this.pending, this.fence);
      if (!ends) this.addCode(codeLine(this.pending, this.fence) + "\n");
    } else {
      this.tail.replaceChildren();
      renderBlocks(this.pending.split("\n"), this.target);
    }
    this.tail.remove();
    this.pending = "";
  }

  renderOpen() {
    const lines = this.pending.split("\n");
    const last = lines.length - 1;  // still growing
    let at = 0;
    for (; at < last;) {
      if (lines[at].trim() === "") {
        ++at;
        continue;
      }
      const block = blockAt(lines, at);
      if (block.kind === "fence" && !(block.closed && block.end <= last)) return this.openFence(lines, at);
      // What ends an open block may be the head of a table, which only the line behind it tells.
      if (block.end > last || (block.open && block.end >= last - 1)) break;
      this.settle(lines.slice(at, block.end), block);
      at = block.end;
    }
    const open = lines.slice(at);
    this.pending = open.join("\n");
    this.tail.replaceChildren();
    renderBlocks(open, this.tail);
  }

  settle(lines, block) {
    const before = this.target.childElementCount;
    renderBlock(lines, block, this.target);
    // Behind what was settled stands the tail.
    if (this.target.childElementCount > before) this.target.append(this.tail);
  }

  openFence(lines, at) {
    const fence = fenceOf(lines[at]);
    const { frame, code } = codeFrame(fence.info);
    this.tail.replaceChildren();
    this.target.insertBefore(frame, this.tail);
    this.fence = { ...fence, code, part: null, lines: 0 };
    this.pending = lines.slice(at + 1).join("\n");
    this.renderCode();
  }

  addCode(text) {
    const { fence } = this;
    if (!fence.part || fence.lines >= CODE_LINES) {
      fence.part = el("span", { class: "part" });
      fence.code.append(fence.part);
      fence.lines = 0;
    }
    fence.part.append(text);
  }

  renderCode() {
    const lines = this.pending.split("\n");
    const end = lines.findIndex((line, i) => i < lines.length - 1 && closesFence(line, this.fence));
    const whole = end < 0 ? lines.slice(0, -1) : lines.slice(0, end);
    for (const line of whole) {
      this.addCode(codeLine(line, this.fence) + "\n");
      ++this.fence.lines;
    }
    this.pending = lines.slice(end < 0 ? -1 : end + 1).join("\n");
    if (end < 0) return;
    this.fence = null;
    this.shown = 0;
    this.renderOpen();
  }
}
