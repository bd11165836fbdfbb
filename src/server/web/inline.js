// The inside of a Markdown paragraph: emphasis, code, links. See markdown.js.

import { el } from "./dom.js";

// Openers that may still find their closer; older ones become plain text. With the longest run of marks that means anything,
// this bounds time and the depth of elements.
const MAX_OPEN = 32;
const MAX_RUN = 6;
const MAX_TARGET = 2048;

const SPECIAL = /[\\`*_~[\]!<&\n]|https?:\/\//gi;
const AUTOLINK = /<(https?:\/\/[^\s<>]{1,2000}|mailto:[^\s<>]{1,300})>/iy;
const BREAK = /<br ?\/?>/iy;
const ENTITY = /&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(amp|lt|gt|quot|apos|nbsp));/iy;
const NAMED = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;

// The target of a link, or null for all that is not plainly a web page or a mail address.
export function safeTarget(text) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(text) || /[\s\u0000-\u001f\u007f]/.test(text)) return null;
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(target) {
  return el("a", { href: target, title: target, target: "_blank", rel: "noopener noreferrer nofollow" });
}

function isUrlEnd(url) {
  if (/[.,:;!?'*_~\]]$/.test(url)) return true;
  return url.endsWith(")") && url.split(")").length > url.split("(").length;
}

class Inline {
  constructor(text, parent) {
    this.text = text;
    this.parent = parent;
    this.at = 0;
    this.plain = "";
    this.open = [];  // {char, count, size, node, closes}: runs of * _ ~, and [ and ![
    this.ticks = null;
  }

  run() {
    while (this.at < this.text.length) {
      SPECIAL.lastIndex = this.at;
      const found = SPECIAL.exec(this.text);
      this.plain += this.text.slice(this.at, found ? found.index : undefined);
      if (!found) break;
      this.at = found.index;
      this.step(found[0]);
    }
    this.flush();
  }

  step(special) {
    switch (special) {
      case "\\":
        return this.escape();
      case "`":
        return this.code();
      case "*":
      case "_":
      case "~":
        return this.emphasis(special);
      case "[":
        return this.bracket("[");
      case "!":
        return this.text[this.at + 1] === "[" ? this.bracket("![") : this.literal(1);
      case "]":
        return this.closeBracket();
      case "<":
        return this.angle();
      case "&":
        return this.entity();
      case "\n":
        return this.lineBreak(1);
      default:
        return this.url();
    }
  }

  flush() {
    if (this.plain) this.parent.append(this.plain);
    this.plain = "";
  }

  append(node) {
    this.flush();
    this.parent.append(node);
    return node;
  }

  literal(length) {
    this.plain += this.text.slice(this.at, this.at + length);
    this.at += length;
  }

  lineBreak(length) {
    this.append(el("br"));
    this.at += length;
  }

  escape() {
    const next = this.text[this.at + 1] ?? "";
    if (!/^[!-/:-@[-`{-~\n]/.test(next)) return this.literal(1);
    if (next === "\n") return this.lineBreak(2);
    this.plain += next;
    this.at += 2;
  }

  match(pattern) {
    pattern.lastIndex = this.at;
    return pattern.exec(this.text);
  }

  entity() {
    const found = this.match(ENTITY);
    if (!found) return this.literal(1);
    const [whole, decimal, hex, name] = found;
    const point = name ? 0 : parseInt(decimal ?? hex, decimal ? 10 : 16);
    const valid = point > 0 && point <= 0x10ffff && !(point >= 0xd800 && point < 0xe000);
    if (!name && !valid) return this.literal(whole.length);
    this.plain += name ? NAMED[name.toLowerCase()] : String.fromCodePoint(point);
    this.at += whole.length;
  }

  angle() {
    const lineBreak = this.match(BREAK);
    if (lineBreak) return this.lineBreak(lineBreak[0].length);
    const found = this.match(AUTOLINK);
    const target = found && !this.inLink() && safeTarget(found[1]);
    if (!target) return this.literal(1);
    const anchor = this.append(link(target));
    anchor.append(found[1]);
    this.at += found[0].length;
  }

  inLink() {
    return this.open.some((opener) => opener.char === "[");
  }

  url() {
    const before = this.text[this.at - 1] ?? " ";
    let url = /^[^\s<>"`|\\]{0,2000}/.exec(this.text.slice(this.at, this.at + 2000))[0];
    while (isUrlEnd(url)) url = url.slice(0, -1);
    const target = /[\p{L}\p{N}]/u.test(before) || this.inLink() ? null : safeTarget(url);
    if (!target) return this.literal(Math.min(url.length, 8) || 1);
    this.append(link(target)).append(url);
    this.at += url.length;
  }

  // Where the next run of exactly `length` backticks begins, at or behind `from`; -1: nowhere.
  closingTicks(length, from) {
    if (!this.ticks) {
      this.ticks = new Map();
      for (const run of this.text.matchAll(/`+/g)) {
        const places = this.ticks.get(run[0].length) ?? { next: 0, at: [] };
        places.at.push(run.index);
        this.ticks.set(run[0].length, places);
      }
    }
    const places = this.ticks.get(length);
    while (places && places.next < places.at.length && places.at[places.next] < from) ++places.next;
    return places?.at[places.next] ?? -1;
  }

  runLength(char) {
    let end = this.at;
    while (this.text[end] === char) ++end;
    return end - this.at;
  }

  code() {
    const length = this.runLength("`");
    const begin = this.at + length;
    const end = this.closingTicks(length, begin);
    if (end < 0) return this.literal(length);
    let inside = this.text.slice(begin, end).replace(/\n/g, " ");
    if (inside.startsWith(" ") && inside.endsWith(" ") && inside.trim()) inside = inside.slice(1, -1);
    this.append(el("code", {}, inside));
    this.at = end + length;
  }

  push(opener) {
    this.open.push(opener);
    if (this.open.length > MAX_OPEN) this.open.shift();
  }

  // Takes what stands behind the opener into `element`.
  wrap(opener, element) {
    this.flush();
    while (opener.node.nextSibling) element.append(opener.node.nextSibling);
    this.parent.append(element);
  }

  emphasis(char) {
    const count = this.runLength(char);
    const before = this.text[this.at - 1] ?? " ";
    const after = this.text[this.at + count] ?? " ";
    const [spaceBefore, spaceAfter] = [/\s/.test(before), /\s/.test(after)];
    const [markBefore, markAfter] = [PUNCTUATION.test(before), PUNCTUATION.test(after)];
    const left = !spaceAfter && (!markAfter || spaceBefore || markBefore);
    const right = !spaceBefore && (!markBefore || spaceAfter || markAfter);
    const opens = char === "_" ? left && (!right || markBefore) : left;
    const closes = char === "_" ? right && (!left || markAfter) : right;
    this.at += count;
    if (count > MAX_RUN || (char === "~" && count !== 2)) return void (this.plain += char.repeat(count));
    const rest = closes ? this.closeEmphasis(char, count, opens) : count;
    if (rest === 0) return;
    if (!opens) return void (this.plain += char.repeat(rest));
    const node = this.append(document.createTextNode(char.repeat(rest)));
    this.push({ char, count: rest, size: count, node, closes });
  }

  // Closes what this run can close; returns how many of its characters are left.
  closeEmphasis(char, count, opens) {
    let rest = count;
    for (let i = this.open.length - 1; i >= 0 && rest > 0; --i) {
      const opener = this.open[i];
      // CommonMark's rule of three: **a*b*** and the like.
      const odd = (opener.closes || opens) && (opener.size + count) % 3 === 0 && (opener.size % 3 || count % 3);
      if (opener.char !== char || (odd && char !== "~")) continue;
      while (rest > 0 && opener.count > 0) {
        const used = rest > 1 && opener.count > 1 ? 2 : 1;
        this.wrap(opener, el(char === "~" ? "del" : used === 2 ? "strong" : "em"));
        rest -= used;
        opener.count -= used;
        opener.node.data = char.repeat(opener.count);
      }
      this.open.length = opener.count > 0 ? i + 1 : i;
    }
    return rest;
  }

  bracket(mark) {
    const node = this.append(document.createTextNode(mark));
    this.push({ char: "[", image: mark.length > 1, node });
    this.at += mark.length;
  }

  closeBracket() {
    const place = this.open.findLastIndex((opener) => opener.char === "[");
    if (place < 0) return this.literal(1);
    const opener = this.open[place];
    const found = this.target(this.at + 1);
    const target = found && safeTarget(found.target);
    if (!target) {
      this.open.splice(place, 1);
      return this.literal(1);
    }
    const anchor = link(target);
    this.wrap(opener, anchor);
    opener.node.remove();
    // Pictures are not loaded: whoever serves them would learn of the reader.
    if (opener.image) anchor.prepend("Picture: ");
    if (anchor.textContent.trim() === "") anchor.textContent = found.target;
    this.open = this.open.slice(0, place).filter((other) => other.char !== "[");
    this.at = found.end;
  }

  // "(target)", "(<target>)" or "(target "title")" at `from`.
  target(from) {
    if (this.text[from] !== "(") return null;
    const text = this.text.slice(from + 1, from + 1 + MAX_TARGET);
    const angle = /^\s*<([^<>\n]*)>/.exec(text);
    const [target, end] = angle ? [angle[1], angle[0].length] : this.bareTarget(text);
    const tail = /^(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(text.slice(end));
    return tail ? { target, end: from + 1 + end + tail[0].length } : null;
  }

  bareTarget(text) {
    const begin = text.length - text.trimStart().length;
    let depth = 0, end = begin;
    for (; end < text.length && !/\s/.test(text[end]); ++end) {
      if (text[end] === "(" && ++depth > 32) break;
      if (text[end] === ")" && --depth < 0) break;
    }
    return [text.slice(begin, end), end];
  }
}

// Appends the text to `parent`, which is empty.
export function renderInline(text, parent) {
  new Inline(text, parent).run();
}
