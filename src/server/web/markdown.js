// Markdown as models write it, made into DOM nodes. Model text only ever becomes text nodes and checked link targets:
// no HTML is parsed. Time is linear in the text, nesting is bounded.

import { el } from "./dom.js";
import { renderInline } from "./inline.js";

const MAX_DEPTH = 8;

const FENCE = /^( *)(`{3,}|~{3,})([^]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+([^]*))?$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])([ \t]+|$)/;

const isBlank = (line) => line.trim() === "";
// With spaces for tabs where it begins.
const spaced = (line) => line.replace(/^[ \t]+/, (space) => space.replaceAll("\t", "    "));
const indentOf = (line) => spaced(line).length - line.trimStart().length;
const isRule = (line) => /^(?:\*{3,}|-{3,}|_{3,})$/.test(line.replace(/[ \t]/g, ""));

export function fenceOf(line) {
  const found = FENCE.exec(line);
  if (!found || (found[2][0] === "`" && found[3].includes("`"))) return null;
  return { indent: found[1].length, marker: found[2], info: found[3].trim() };
}

export function closesFence(line, fence) {
  const text = line.trim();
  return text.length >= fence.marker.length && text === fence.marker[0].repeat(text.length);
}

function itemOf(line) {
  if (isRule(line)) return null;
  const found = ITEM.exec(spaced(line));
  if (!found) return null;
  const [, space, marker, gap] = found;
  // More than four spaces belong to what is said.
  const offset = space.length + marker.length + (gap.length > 4 ? 1 : Math.max(gap.length, 1));
  return { indent: space.length, marker, kind: marker.slice(-1), ordered: marker.length > 1, offset };
}

// "| a | b \| c |" -> ["a", "b | c"]
function cellsOf(line) {
  const cells = [""];
  const text = line.trim();
  for (let i = text[0] === "|" ? 1 : 0; i < text.length; ++i) {
    if (text[i] === "\\" && text[i + 1] === "|") {
      cells[cells.length - 1] += text[++i];
    } else if (text[i] === "|") {
      if (i + 1 < text.length) cells.push("");
    } else {
      cells[cells.length - 1] += text[i];
    }
  }
  return cells.map((cell) => cell.trim());
}

function isTableAt(lines, at) {
  const [head, below] = [lines[at], lines[at + 1]];
  if (below === undefined || !head.includes("|") || !/^[\s|:-]+$/.test(below) || !below.includes("-")) return false;
  const marks = cellsOf(below);
  return marks.every((cell) => /^:?-+:?$/.test(cell)) && marks.length === cellsOf(head).length;
}

// Whether a paragraph ends before this line.
function interrupts(lines, at) {
  const line = lines[at];
  if (isBlank(line) || fenceOf(line) || HEADING.test(line) || QUOTE.test(line) || isRule(line)) return true;
  const item = itemOf(line);
  if (item) return line.length > item.offset && (!item.ordered || /^\s*1[.)]/.test(line));
  return isTableAt(lines, at);
}

function listEnd(lines, at) {
  const first = itemOf(lines[at]);
  let blank = false;
  for (let i = at + 1; i < lines.length; ++i) {
    if (isBlank(lines[i])) {
      blank = true;
      continue;
    }
    const item = itemOf(lines[i]);
    const belongs = indentOf(lines[i]) > first.indent || (item && item.kind === first.kind);
    if (!belongs && (blank || item || interrupts(lines, i))) return i;
    blank = false;
  }
  return lines.length;
}

function quoteEnd(lines, at) {
  let i = at + 1;
  while (i < lines.length && (QUOTE.test(lines[i]) || !interrupts(lines, i))) ++i;
  return i;
}

// The block that begins at the line `at`, which is not blank: its kind, the line behind it, and whether it is `open`: ended only
// by what that line is.
export function blockAt(lines, at) {
  const line = lines[at];
  const fence = fenceOf(line);
  if (fence) {
    let i = at + 1;
    while (i < lines.length && !closesFence(lines[i], fence)) ++i;
    return { kind: "fence", end: Math.min(i + 1, lines.length), closed: i < lines.length, open: false, fence };
  }
  if (HEADING.test(line)) return { kind: "heading", end: at + 1, open: false };
  if (isRule(line)) return { kind: "rule", end: at + 1, open: false };
  if (QUOTE.test(line)) return { kind: "quote", end: quoteEnd(lines, at), open: true };
  if (itemOf(line)) return { kind: "list", end: listEnd(lines, at), open: true };
  const table = isTableAt(lines, at);
  let i = at + (table ? 2 : 1);
  while (i < lines.length && (table ? !isBlank(lines[i]) && lines[i].includes("|") : !interrupts(lines, i))) ++i;
  return { kind: table ? "table" : "paragraph", end: i, open: true };
}

// A block of code without its text: the frame, and where the text goes.
export function codeFrame(info) {
  const language = info.split(/[\s{]/, 1)[0].slice(0, 40);
  const code = el("code");
  const copy = el("button", { type: "button", class: "copy", "aria-label": "Copy code" }, "Copy");
  const bar = el("div", { class: "code-bar" }, el("span", {}, language || "code"), copy);
  const name = language ? `Code, ${language}` : "Code";
  // What scrolls must be reachable with the keyboard.
  const pre = el("pre", { tabindex: "0", role: "region", "aria-label": name }, code);
  return { frame: el("div", { class: "code" }, bar, pre), code };
}

const unindent = (line, columns) => (columns === 0 ? line : spaced(line).slice(Math.min(indentOf(line), columns)));
export const codeLine = (line, fence) => unindent(line, fence.indent);

function renderFence(lines, block, parent) {
  const { frame, code } = codeFrame(block.fence.info);
  const inside = lines.slice(1, block.closed || lines.at(-1) === "" ? -1 : undefined);
  code.textContent = inside.map((line) => codeLine(line, block.fence) + "\n").join("");
  parent.append(frame);
}

function renderHeading(line, parent) {
  const [, marks, text] = HEADING.exec(line);
  let shown = (text ?? "").trimEnd();
  let end = shown.length;
  while (shown[end - 1] === "#") --end;
  if (end === 0 || shown[end - 1] === " ") shown = shown.slice(0, end).trimEnd();
  // The page's own heading is the first level.
  const heading = el(`h${Math.min(marks.length + 1, 6)}`, { class: `h${marks.length}` });
  renderInline(shown, heading);
  parent.append(heading);
}

function renderTable(lines, parent) {
  const sides = cellsOf(lines[1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left");
  const row = (line, tag) => {
    const cells = cellsOf(line);
    return el("tr", {}, ...sides.map((side, i) => {
      const cell = el(tag, { class: side });
      renderInline(cells[i] ?? "", cell);
      return cell;
    }));
  };
  const body = el("tbody");
  for (const line of lines.slice(2)) body.append(row(line, "td"));
  const table = el("table", {}, el("thead", {}, row(lines[0], "th")), body);
  parent.append(el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, table));
}

function renderItem(lines, item, depth) {
  const entry = el("li");
  const inside = lines.map((line, i) => (i === 0 ? spaced(line).slice(item.offset) : unindent(line, item.offset)));
  const task = /^\[([ xX])\] /.exec(inside[0]);
  if (task) inside[0] = (task[1] === " " ? "☐ " : "☑ ") + inside[0].slice(4);
  if (task) entry.className = "task";
  renderBlocks(inside, entry, depth + 1);
  return entry;
}

function renderList(lines, parent, depth) {
  const first = itemOf(lines[0]);
  const list = el(first.ordered ? "ol" : "ul");
  const number = parseInt(first.marker, 10);
  if (first.ordered && number !== 1) list.start = number;
  for (let at = 0; at < lines.length;) {
    const item = itemOf(lines[at]);
    let end = at + 1;
    while (end < lines.length) {
      const next = itemOf(lines[end]);
      if (next && next.indent <= first.indent) break;
      ++end;
    }
    list.append(renderItem(lines.slice(at, end), item, depth));
    at = end;
  }
  parent.append(list);
}

function renderParagraph(lines, parent) {
  const paragraph = el("p");
  renderInline(lines.map((line) => line.trim()).join("\n"), paragraph);
  parent.append(paragraph);
}

export function renderBlock(lines, block, parent, depth = 0) {
  switch (depth > MAX_DEPTH ? "paragraph" : block.kind) {
    case "fence":
      return renderFence(lines, block, parent);
    case "heading":
      return renderHeading(lines[0], parent);
    case "rule":
      return parent.append(el("hr"));
    case "table":
      return renderTable(lines, parent);
    case "list":
      return renderList(lines, parent, depth);
    case "quote": {
      const quote = el("blockquote");
      renderBlocks(lines.map((line) => line.replace(QUOTE, "")), quote, depth + 1);
      return parent.append(quote);
    }
    default:
      return renderParagraph(lines, parent);
  }
}

export function renderBlocks(lines, parent, depth = 0) {
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) {
      ++at;
      continue;
    }
    const block = blockAt(lines, at);
    renderBlock(lines.slice(at, block.end), block, parent, depth);
    at = block.end;
  }
}

export const linesOf = (text) => text.replace(/\r\n?/g, "\n").split("\n");

export function renderMarkdown(text, parent) {
  renderBlocks(linesOf(text), parent);
}
