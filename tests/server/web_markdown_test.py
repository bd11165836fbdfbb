"""The web page's Markdown in headless Chromium: what it shows, hostile texts, and texts that grow. Skipped where there is none."""

import random
import unittest

from browser import Browser, skip_without_browser
from lapidary_server import Server

# The HTML that stands for the nodes, without what is there for looks.
RENDER = """
const { renderMarkdown } = await import('/markdown.js');
const { MarkdownStream } = await import('/stream.js');
const html = (node) => {
  for (const e of node.querySelectorAll('.code-bar')) e.remove();
  for (const e of node.querySelectorAll('.part, .code, .table')) e.replaceWith(...e.childNodes);
  node.normalize();
  return node.innerHTML.replace(/ (tabindex|role|aria-label|title|target|rel)="[^"]*"/g, '');
};
const whole = (text) => {
  const node = document.createElement('div');
  renderMarkdown(text, node);
  return html(node);
};
const grown = (pieces) => {
  const node = document.createElement('div');
  const stream = new MarkdownStream(node);
  for (const piece of pieces) {
    stream.append(piece);
    stream.render();
  }
  stream.finish();
  return html(node);
};
"""

# What is written, what is shown.
CASES = [
    ("", ""),
    ("plain", "<p>plain</p>"),
    ("a\nb\n\nc", "<p>a<br>b</p><p>c</p>"),
    ("a\r\nb\rc", "<p>a<br>b<br>c</p>"),
    # Emphasis
    ("*a* _b_ **c** __d__ ~~e~~ ***f***", "<p><em>a</em> <em>b</em> <strong>c</strong> <strong>d</strong> <del>e</del> "
                                          "<em><strong>f</strong></em></p>"),
    ("**a *b* c**", "<p><strong>a <em>b</em> c</strong></p>"),
    ("snake_case_name 2*3*4 ~5 a * b", "<p>snake_case_name 2<em>3</em>4 ~5 a * b</p>"),
    ("**open", "<p>**open</p>"),
    ("*a **b*", "<p>*a *<em>b</em></p>"),
    ("*a**b*", "<p><em>a**b</em></p>"),
    ("**a**b", "<p><strong>a</strong>b</p>"),
    (r"\*a\* \\ \a", r"<p>*a* \ \a</p>"),
    ("*" * 40 + "a" + "*" * 40, "<p>" + "*" * 40 + "a" + "*" * 40 + "</p>"),
    # Code
    ("`a` ``b`c`` `*d*`", "<p><code>a</code> <code>b`c</code> <code>*d*</code></p>"),
    ("`open ``b", "<p>`open ``b</p>"),
    ("`<b>`", "<p><code>&lt;b&gt;</code></p>"),
    ("```py\nx = 1\n\n  y\n```\nafter", "<pre><code>x = 1\n\n  y\n</code></pre><p>after</p>"),
    ("~~~\n```\n~~~", "<pre><code>```\n</code></pre>"),
    ("````\n```\n````", "<pre><code>```\n</code></pre>"),
    ("```\nopen", "<pre><code>open\n</code></pre>"),
    ("```\n\ttab\n```", "<pre><code>\ttab\n</code></pre>"),
    ("  ```\n  a\n    b\n  ```", "<pre><code>a\n  b\n</code></pre>"),
    # Headings, rules, quotes
    ("# a\n## b ##\n####### c\n#d", '<h2 class="h1">a</h2><h3 class="h2">b</h3><p>####### c<br>#d</p>'),
    ("# C#", '<h2 class="h1">C#</h2>'),
    ("a\n***\n- - -\nb", "<p>a</p><hr><hr><p>b</p>"),
    ("> a\n> > b\nlazy\n\nc", "<blockquote><p>a</p><blockquote><p>b<br>lazy</p></blockquote></blockquote><p>c</p>"),
    # Lists
    ("- a\n- b", "<ul><li><p>a</p></li><li><p>b</p></li></ul>"),
    ("* a\n  * b\n    1. c\n* d", "<ul><li><p>a</p><ul><li><p>b</p><ol><li><p>c</p></li></ol></li></ul></li><li><p>d</p></li></ul>"),
    ("- a\n\t- b\n\t\t- c", "<ul><li><p>a</p><ul><li><p>b</p><ul><li><p>c</p></li></ul></li></ul></li></ul>"),
    ("3. a\n4. b\n\ntext", '<ol start="3"><li><p>a</p></li><li><p>b</p></li></ol><p>text</p>'),
    ("1. a\n\n   more\n\n2. b", "<ol><li><p>a</p><p>more</p></li><li><p>b</p></li></ol>"),
    ("1. a\n   ```\n   x\n   ```\n2. b", "<ol><li><p>a</p><pre><code>x\n</code></pre></li><li><p>b</p></li></ol>"),
    ("- [ ] a\n- [x] b", '<ul><li class="task"><p>☐ a</p></li><li class="task"><p>☑ b</p></li></ul>'),
    ("text\n- a\n2024. Year", "<p>text</p><ul><li><p>a</p></li></ul><ol start=\"2024\"><li><p>Year</p></li></ol>"),
    ("in\n2024. Year", "<p>in<br>2024. Year</p>"),
    ("- a\n+ b", "<ul><li><p>a</p></li></ul><ul><li><p>b</p></li></ul>"),
    # Tables
    ("| a | b |\n|:-:|--:|\n| `|` \\| | *c* |\nx", '<table><thead><tr><th class="center">a</th><th class="right">b</th></tr></thead>'
     '<tbody><tr><td class="center">`</td><td class="right">` |</td></tr></tbody></table><p>x</p>'),
    ("a | b\n- | -\nc", '<table><thead><tr><th class="left">a</th><th class="left">b</th></tr></thead><tbody></tbody></table><p>c</p>'),
    ("a | b\n- | - | -", "<p>a | b</p><ul><li><p>| - | -</p></li></ul>"),
    # Links
    ("[a](https://example.com/x?y=1)", '<p><a href="https://example.com/x?y=1">a</a></p>'),
    ("[*a*](<https://example.com> 'title') [b](http://e.com/(1))", '<p><a href="https://example.com/"><em>a</em></a> '
     '<a href="http://e.com/(1)">b</a></p>'),
    ("[a](mailto:me@example.com)", '<p><a href="mailto:me@example.com">a</a></p>'),
    ("<https://example.com> <mailto:me@example.com>", '<p><a href="https://example.com/">https://example.com</a> '
     '<a href="mailto:me@example.com">mailto:me@example.com</a></p>'),
    ("see https://example.com/a_(b), and (https://example.com/c).", '<p>see <a href="https://example.com/a_(b)">'
     'https://example.com/a_(b)</a>, and (<a href="https://example.com/c">https://example.com/c</a>).</p>'),
    ("**https://example.com**", '<p><strong><a href="https://example.com/">https://example.com</a></strong></p>'),
    ("![alt](https://example.com/x.png)", '<p><a href="https://example.com/x.png">Picture: alt</a></p>'),
    ("[[a](https://b.c)](https://d.e)", '<p>[<a href="https://b.c/">a</a>](<a href="https://d.e/">https://d.e</a>)</p>'),
    ("[a] [b](", "<p>[a] [b](</p>"),
    # Entities and breaks
    ("&lt;b&gt; &amp;amp; &#x3c; &#0; &nosuch;", "<p>&lt;b&gt; &amp;amp; &lt; &amp;#0; &amp;nosuch;</p>"),
    ("a<br>b<br/>c", "<p>a<br>b<br>c</p>"),
]

# None of these may become a link.
TARGETS = ["javascript:alert(1)", "JaVaScRiPt:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "java&#10;script:alert(1)",
           "&#106;avascript:alert(1)", "\\javascript:alert(1)", "javascript&colon;alert(1)", "data:text/html,<script>alert(1)</script>",
           "vbscript:x", "file:///etc/passwd", "blob:https://a.b/c", "//evil.example", "/v1/models", "?x", "#x", "ftp://a.b", "about:blank",
           "view-source:https://a.b", "http:javascript:alert(1)", "https:evil.example", "\u0001javascript:alert(1)",
           "filesystem:https://a.b",           "https://", "http://[", "https://a b"]

HOSTILE = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<a href=javascript:alert(1)>x</a>",
           '"><script>alert(1)</script>', "<iframe src=javascript:alert(1)>", "<math><mtext><script>alert(1)</script>",
           "<!--><script>alert(1)</script>-->", "<style>@import 'http://a.b'</style>", "<base href=//evil.example>",
           "<form action=//evil.example><input>", "<object data=x>", "<meta http-equiv=refresh content=0>",
           '[x](https://a.b/"onmouseover="alert(1))', "[x](https://a.b 'onclick=alert(1)')", "![x\" onerror=\"alert(1)](https://a.b)",
           "```\"><script>alert(1)</script>\nx\n```", "``` onmouseover=alert(1)\nx\n```", "| <script> |\n| --- |\n| <img onerror=x> |",
           "# <script>", "> <script>", "- <script>", "<<script>script>alert(1)<</script>/script>"]

# As long as they are, each takes a part of a second or is far from linear.
LONG = ["*" * 200_000, "*a " * 70_000, "a* " * 70_000, "*a_ " * 50_000, "**a" * 70_000, "[" * 200_000, "[a](" * 50_000,
        "![" * 100_000, "](" * 100_000,
        "[a](<" * 40_000, "[a](b \"" * 30_000, "`" * 200_000, "".join("`" * n + " " for n in range(600)), "> " * 100_000,
        ">" * 200_000, "- " * 100_000, "1. " * 60_000, "\n".join(" " * i + "- a" for i in range(600)), "#" * 200_000,
        "# " + "#" * 200_000 + "a",
        "# a" + " " * 200_000 + "b", "|" * 200_000, "|\n|-\n" * 50_000, "a|" * 1000 + "\n" + "-|" * 1000 + ("\n" + "b|" * 1000) * 50,
        "-" * 200_000, "- " * 100_000 + "a", "<" * 200_000, "<http://" * 30_000, "&" * 200_000, "&#" * 100_000, "\\" * 200_000,
        "https://" * 25_000, "https://a" + ")" * 200_000, "```\n" * 50_000, "~" * 200_000, "~~a" * 70_000, "\n" * 200_000, " " * 200_000,
        "a\n" * 100_000, "> a\n" * 50_000, "- a\n" * 30_000, "- a\n\n" * 30_000, "\t" * 100_000 + "- a"]


class WebMarkdown(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.browser = Browser()
        cls.browser.go(f"http://127.0.0.1:{cls.server.port}/")

    @classmethod
    def tearDownClass(cls):
        cls.browser.stop()
        assert cls.server.stop() == 0

    def render(self, texts):
        return self.browser.run(RENDER + "return arguments[0].map(whole);", texts)

    def test_what_is_shown(self):
        for (text, wanted), found in zip(CASES, self.render([text for text, _ in CASES])):
            with self.subTest(text=text):
                self.assertEqual(found, wanted)

    def test_links_lead_to_the_web_and_tell_nothing(self):
        texts = [form % target for target in TARGETS for form in ("[x](%s)", "[x](<%s>)", "![x](%s)", "<%s>", "%s")]
        hrefs = self.browser.run(RENDER + """
            return arguments[0].map((text) => {
              const node = document.createElement('div');
              renderMarkdown(text, node);
              return [...node.querySelectorAll('[href], [src], [action]')].map((e) => e.getAttribute('href') ?? '?');
            });""", texts)
        for text, found in zip(texts, hrefs):
            for href in found:  # of a part of the text, such as https://a.b
                self.assertRegex(href, r"^https?://[a-z.]+(/|$)", text)
            if "https://a" not in text:
                self.assertEqual(found, [], text)
        rel = self.browser.run(RENDER + "const node = document.createElement('div'); renderMarkdown('[x](https://a.b)', node);"
                               "return [node.querySelector('a').rel, node.querySelector('a').target];")
        self.assertEqual(rel, ["noopener noreferrer nofollow", "_blank"])

    def test_html_is_text(self):
        pairs = [a + between + b for a in HOSTILE for b in HOSTILE for between in ("\n\n", " ")]
        found = self.browser.run(RENDER + """
            const plain = new Set(['A', 'BLOCKQUOTE', 'BR', 'BUTTON', 'CODE', 'DIV', 'EM', 'H2', 'HR', 'LI', 'OL', 'P', 'PRE', 'SPAN',
                                   'STRONG', 'TABLE', 'TBODY', 'TD', 'TH', 'THEAD', 'TR', 'UL', 'DEL']);
            const attributes = new Set(['class', 'href', 'title', 'target', 'rel', 'tabindex', 'role', 'aria-label', 'start', 'type']);
            const bad = [];
            for (const text of arguments[0]) {
              const node = document.createElement('div');
              renderMarkdown(text, node);
              for (const e of node.querySelectorAll('*')) {
                if (!plain.has(e.tagName)) bad.push([text, e.tagName]);
                for (const { name } of e.attributes) if (!attributes.has(name)) bad.push([text, name]);
              }
            }
            return bad;""", pairs)
        self.assertEqual(found, [])

    def test_growing_texts_end_as_whole_ones(self):
        draw = random.Random(7)
        parts = [text for text, _ in CASES] + HOSTILE + ["\n", "\n\n", " ", "- ", "```", "> ", "| a |\n|--|\n", "**", "é", "😀"]
        texts = ["".join(draw.choice(parts) + draw.choice(["", "\n", "\n\n"]) for _ in range(12)) for _ in range(250)]
        cut = []
        for text in texts:
            places = sorted(draw.sample(range(len(text) + 1), min(len(text), draw.choice([3, 20, len(text)]))))
            cut.append([text[a:b] for a, b in zip([0, *places], [*places, len(text)])])
        wanted = self.render(texts)
        found = self.browser.run(RENDER + "return arguments[0].map(grown);", cut)
        for text, a, b in zip(texts, wanted, found):
            self.assertEqual(b, a, repr(text))

    def test_time_is_linear(self):
        """Not how long, but that all of it ends within the patience of a test, which nothing quadratic would."""
        for text in LONG:
            depth = self.browser.run(RENDER + """
                const node = document.createElement('div');
                renderMarkdown(arguments[0], node);
                let depth = 0;
                for (const e of node.querySelectorAll('*')) {
                  if (e.childElementCount) continue;
                  let up = 0;
                  for (let at = e; at !== node; at = at.parentElement) ++up;
                  depth = Math.max(depth, up);
                }
                return depth;""", text)
            self.assertLess(depth, 150, text[:20])

    def test_a_long_answer_grows_in_linear_work(self):
        """Characters rendered while a text of 10,000 pieces grows: each a bounded number of times."""
        for piece in ("word word ", "word\n\n", "- item\n", "code();\n", "| a | b |\n"):
            first = {"code();\n": "```\n", "| a | b |\n": "| a | b |\n| - | - |\n"}.get(piece, "")
            made = self.browser.run(RENDER + """
                const [first, piece] = arguments;
                const node = document.createElement('div');
                document.body.append(node);
                let made = 0;
                const watch = new MutationObserver((all) => {
                  for (const one of all) for (const e of one.addedNodes) made += e.textContent.length;
                });
                watch.observe(node, {childList: true, subtree: true});
                const stream = new MarkdownStream(node);
                stream.append(first);
                for (let i = 0; i < 1000; ++i) {
                  stream.append(piece.repeat(10));
                  stream.render();
                }
                stream.finish();
                await new Promise((done) => setTimeout(done));
                watch.disconnect();
                const shown = node.textContent.length;
                node.remove();
                return made / shown;""", first, piece)
            self.assertLess(made, 60, piece)


if __name__ == "__main__":
    skip_without_browser()
    unittest.main()
