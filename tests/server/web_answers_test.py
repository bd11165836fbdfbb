"""The web page with answers that no demo model gives: hostile text, long ones, failures. Skipped where there is no Chromium."""

import threading
import unittest

from browser import ESCAPE, Browser, skip_without_browser
from lapidary_server import PATIENCE_S, Server
from scripted_server import DROP, ENDLESS, ScriptedServer, answer, raw, refusal
from web_page import Page

HOSTILE = """<script>window.hit = 1</script>
<img src=x onerror="window.hit = 2"> <svg onload=window.hit=3> <iframe srcdoc="<script>parent.hit=4</script>"></iframe>

[click](javascript:window.hit=5) ![](javascript:window.hit=6) <javascript:window.hit=7>

```html
<script>window.hit = 8</script>
```

| <b>a</b> | <img src=x onerror=window.hit=9> |
| --- | --- |
| `<i>` | <style>body { display: none }</style> |
"""


class WebAnswers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.real = Server()
        cls.scripted = ScriptedServer(cls.real)
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.stop()
        cls.scripted.stop()
        assert cls.real.stop() == 0

    def setUp(self):
        self.browser.size(1000, 800)
        self.page = Page(self.browser, self.scripted.url)
        self.page.open()
        self.browser.complaints()
        self.scripted.bodies.clear()
        self.scripted.keys.clear()
        self.scripted.gone.clear()

    def ask(self, *answers, text="Hi", wait=True):
        for one in answers:
            self.scripted.answers.put(one)
        self.page.say(text, wait)

    def sent(self):
        return self.scripted.bodies[-1]["messages"]

    def test_html_from_the_model_is_text(self):
        half = len(HOSTILE) // 2
        self.ask(answer({"reasoning_content": HOSTILE}, HOSTILE[:half], HOSTILE[half:]), text=HOSTILE)
        self.browser.click(".thought summary")
        shown = self.browser.text(".assistant > .md")
        for text in ("<script>window.hit = 1</script>", '<img src=x onerror="window.hit = 2">', "<b>a</b>", "<i>",
                     "<script>window.hit = 8</script>", "[click](javascript:window.hit=5)"):
            self.assertIn(text, shown)
        self.assertEqual(self.page.user_texts(), [HOSTILE.strip()])
        self.assertEqual(self.browser.find_all("#messages :is(script, img, svg, iframe, style, b, i, a)"), [])
        self.assertIsNone(self.browser.run("return window.hit"))
        # Nor later, from what the browser kept.
        self.page.open(forget=False)
        self.assertIn("<script>window.hit = 1</script>", self.browser.text(".assistant > .md"))
        self.assertEqual(self.browser.find_all("#messages :is(script, img, svg, iframe, style, b, i, a)"), [])
        self.assertIsNone(self.browser.run("return window.hit"))
        self.assertEqual(self.browser.complaints(), [])

    def test_the_policy_stops_what_the_page_would_not(self):
        tried = self.browser.run(
            "const told = []; document.addEventListener('securitypolicyviolation', (e) => told.push(e.effectiveDirective));"
            "const script = document.createElement('div');"
            "try { script.innerHTML = '<img src=x onerror=window.hit=1>'; } catch (e) { told.push(e.name); }"
            "const image = new Image(); image.src = 'http://127.0.0.1:9/x.png'; document.body.append(image);"
            "await new Promise((done) => setTimeout(done, 100)); return told;")
        self.assertIn("TypeError", tried)
        self.assertIn("img-src", tried)
        self.assertIsNone(self.browser.run("return window.hit"))

    def test_refusals_are_told_and_tried_again(self):
        self.ask(refusal(429, "the queue is full", Retry_After="7"))
        self.assertEqual(self.browser.text(".notes .error"), "The server is busy: the queue is full. Try again in 7 s.")
        self.scripted.answers.put(raw(502, b"<h1>Bad gateway</h1>"))
        self.browser.click(".assistant .actions button")
        self.page.wait_for_answer()
        self.assertEqual(self.browser.text(".notes .error"), "The server answered with status 502.")
        self.scripted.answers.put(answer("Here"))
        self.browser.click(".assistant .actions button")
        self.page.wait_for_answer()
        self.assertEqual((self.page.answers(), self.browser.find_all(".notes .error")), (["Here"], []))
        self.assertEqual(self.sent(), [{"role": "user", "content": "Hi"}])

    def test_a_key_that_is_wanted_later(self):
        self.ask(refusal(401, "wrong or missing API key"))
        self.scripted.answers.put(answer("Here"))
        self.browser.type("#key-dialog [name=key]", "sesame")
        self.browser.click("#key-dialog .primary")
        self.browser.wait("document.querySelector('.assistant > .md').textContent === 'Here'")
        self.page.wait_for_answer()
        self.assertEqual((self.page.user_texts(), self.page.answers()), (["Hi"], ["Here"]))
        self.assertEqual(self.scripted.keys, [None, "Bearer sesame"])

    def test_copying(self):
        self.ask(answer("Text\n\n```\na <b>\n```\n"))
        self.browser.run("navigator.clipboard.writeText = async (text) => { window.copied = text; };")
        self.browser.click(".code .copy")
        self.assertEqual(self.browser.wait("window.copied"), "a <b>\n")
        self.assertEqual(self.browser.text(".code .copy"), "Copied")
        # Over plain HTTP browsers have no clipboard for pages, but the copying of what is selected.
        self.browser.run("navigator.clipboard.writeText = async () => { throw new Error(); };"
                         "document.addEventListener('copy', (e) => window.copied = e.target.value);")
        self.browser.click(".user .actions button + button")
        self.assertEqual(self.browser.wait("window.copied === 'Hi' && window.copied"), "Hi")

    def test_a_lost_connection_keeps_what_came(self):
        shown = threading.Event()
        self.ask(answer("Half of", " it", shown, DROP), wait=False)
        self.browser.wait("document.querySelector('.assistant > .md').textContent === 'Half of it'")
        shown.set()
        self.page.wait_for_answer()
        self.ask(raw(200, b'data: {"choices":[]}\n\n', "text/event-stream"))
        for error in self.browser.texts(".notes .error"):
            self.assertIn("connection was lost", error)
        self.assertEqual(self.page.answers(), ["Half of it", ""])
        self.scripted.answers.put(answer("All of it"))
        self.browser.click(".assistant:last-child .actions button")
        self.page.wait_for_answer()
        self.assertEqual(self.page.answers(), ["Half of it", "All of it"])
        self.assertEqual([m["content"] for m in self.sent()], ["Hi", "Half of it", "Hi"])

    def test_without_room_to_keep_anything(self):
        self.browser.run("Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };")
        self.ask(answer("One"))
        self.assertEqual(self.page.answers(), ["One"])
        self.assertIn("Not kept", self.browser.text("#context"))
        self.page.open(forget=False)
        self.assertEqual(self.page.answers(), [])
        # What is kept and makes no sense is not taken.
        self.browser.run("localStorage.setItem('lapidary.conversation', '[{\"role\": \"assistant\"}, 5]');"
                         "localStorage.setItem('lapidary.settings', '{{');")
        self.page.open(forget=False)
        self.ask(answer("Two"))
        self.assertEqual(self.page.answers(), ["Two"])

    def test_an_unreachable_server(self):
        lonely = ScriptedServer(self.real)
        page = Page(self.browser, lonely.url)
        page.open()
        lonely.stop()
        page.say("Hi")
        self.assertIn("cannot be reached", self.browser.text(".notes .error"))
        self.browser.wait("document.getElementById('model').textContent === 'not reachable'")

    def test_an_error_within_a_stream(self):
        def failing(handler):
            handler.begin(200, "text/event-stream")
            handler.event({"choices": [{"index": 0, "delta": {"content": "So"}, "finish_reason": None}]})
            handler.event({"error": {"message": "a step failed", "type": "server_error", "param": None, "code": None}})
        self.ask(failing)
        self.assertEqual((self.page.answers(), self.browser.text(".notes .error")), (["So"], "a step failed"))

    def test_stopped_answers_are_sent_back_as_far_as_they_came(self):
        forever = threading.Event()
        self.ask(answer("One", forever, ENDLESS), wait=False)
        self.browser.wait("document.querySelector('.assistant > .md').textContent === 'One'")
        self.browser.press(ESCAPE)
        self.page.wait_for_answer()
        forever.set()
        self.assertTrue(self.scripted.gone.wait(PATIENCE_S))
        self.ask(answer({"reasoning_content": "Hm"}, threading.Event()), wait=False)
        self.browser.wait("document.querySelector('.assistant:last-child .thought:not([hidden])')")
        self.browser.click("#stop")
        self.page.wait_for_answer()
        self.ask(answer("Two"))
        # Of a thought alone nothing is sent.
        self.assertEqual([(m["role"], m["content"]) for m in self.sent()],
                         [("user", "Hi"), ("assistant", "One"), ("user", "Hi"), ("user", "Hi")])

    def test_editing_while_an_answer_is_written_stops_it(self):
        self.ask(answer("One", threading.Event()), wait=False)
        self.browser.wait("document.querySelector('.assistant > .md').textContent === 'One'")
        self.browser.click(".user .actions button")
        self.browser.type(".edit textarea", "!")
        self.scripted.answers.put(answer("Two"))
        self.browser.click(".edit .primary")
        self.browser.wait("document.querySelector('.assistant > .md')?.textContent === 'Two'")
        self.page.wait_for_answer()
        self.assertEqual((self.page.user_texts(), self.page.answers()), (["Hi!"], ["Two"]))

    def test_closing_the_page_keeps_what_came(self):
        self.ask(answer("One", threading.Event()), wait=False)
        self.browser.wait("document.querySelector('.assistant > .md').textContent === 'One'")
        self.page.open(forget=False)
        self.assertEqual((self.page.answers(), self.browser.text(".note")), (["One"], "Stopped."))

    def test_tool_calls_are_folded_and_cut_ones_not_sent(self):
        call = [{"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": '{"a": "<b>'}}]},
                {"tool_calls": [{"index": 0, "function": {"arguments": '</b>"}'}}]}]
        self.ask(answer("Wait", *call, finish="tool_calls"))
        self.assertEqual(self.browser.text(".call pre"), "")
        self.browser.click(".call summary")
        self.assertEqual(self.browser.text(".call pre"), '{\n"a": "<b></b>"\n}'.replace('\n"', '\n  "'))
        self.browser.type(".results textarea", "42")
        self.scripted.answers.put(answer("Done"))
        self.browser.click(".results .primary")
        self.page.wait_for_answer()
        self.assertEqual(self.sent()[1]["tool_calls"][0]["function"], {"name": "f", "arguments": '{"a": "<b></b>"}'})
        self.assertEqual(self.sent()[2], {"role": "tool", "tool_call_id": "c1", "content": "42"})
        self.ask(answer(*call[:2], finish="length"))
        self.ask(answer("So"))
        self.assertEqual([m["role"] for m in self.sent()], ["user", "assistant", "tool", "assistant", "user", "user"])

    def test_scrolls_along_only_at_the_end(self):
        lines, more = threading.Event(), threading.Event()
        many = "\n\n".join(f"line {i}" for i in range(60))
        self.ask(answer(many, lines, "\n\n" + many, more, "\n\n" + many), wait=False)
        far = "document.getElementById('log').scrollHeight - innerHeight > 900"
        at_end = ("(document.getElementById('log').scrollHeight - document.getElementById('log').scrollTop"
                  " - document.getElementById('log').clientHeight < 2)")
        self.browser.wait(f"{far} && {at_end}")
        self.browser.run("document.getElementById('log').scrollTop = 100")
        self.browser.wait("!document.getElementById('jump').hidden")
        lines.set()
        self.browser.wait("document.querySelectorAll('.assistant p').length >= 120")
        self.assertEqual(self.browser.run("return document.getElementById('log').scrollTop"), 100)
        self.browser.click("#jump")
        self.assertTrue(self.browser.run(f"return {at_end}"))
        more.set()
        self.page.wait_for_answer()
        self.assertTrue(self.browser.run(f"return {at_end}"))

    def test_narrow_screens_scroll_down_only(self):
        wide = ("A" * 300 + "\n\n`" + "b" * 300 + "`\n\n```\n" + "c" * 300 + "\n```\n\n|" + "| d" * 30 + "|\n" + "| - " * 31 + "|\n\n"
                "https://example.com/" + "e" * 300 + "\n\n" + "> " * 6 + "f\n\n" + "".join("  " * i + "- g\n" for i in range(8)))
        self.browser.size(360, 640, mobile=True)
        self.ask(answer({"reasoning_content": wide}, wide), text="h" * 300)
        self.browser.click(".thought summary")
        self.assertEqual(self.browser.run("return innerWidth"), 360)
        for place in ("document.scrollingElement", "document.getElementById('log')"):
            self.assertLessEqual(self.browser.run(f"return {place}.scrollWidth"), 360)
        self.browser.click("#settings")
        self.assertLessEqual(self.browser.run("return document.getElementById('settings-dialog').scrollWidth"), 360)
        small = self.browser.run(
            "return [...document.querySelectorAll('header button, #send')].filter((e) => e.offsetHeight < 36).length")
        self.assertEqual(small, 0)

    def test_text_can_be_read_in_both_themes(self):
        text = "# Head\n\nText `code` [link](https://example.com)\n\n> quote\n\n```c\nint x;\n```\n\n| a |\n| - |\n| b |\n"
        self.ask(answer({"reasoning_content": "Hm\n\n`code`"}, text, finish="length"))
        self.ask(refusal(500, "failed"))
        self.browser.run("for (const e of document.querySelectorAll('details')) e.open = true;")
        for theme in ("light", "dark"):
            self.browser.system_theme(theme)
            self.browser.wait(f"document.documentElement.dataset.theme === {theme!r}")
            for dialog in (None, "settings-dialog", "key-dialog", "clear-dialog"):
                if dialog:
                    self.browser.run(f"document.getElementById({dialog!r}).showModal()")
                self.assertEqual(self.browser.run(CONTRAST), [], (theme, dialog))
                if dialog:
                    self.browser.run(f"document.getElementById({dialog!r}).close()")
        self.browser.system_theme("light")


# Texts that do not stand out from what is behind them by 4.5 to 1 (WCAG 2, AA).
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const colour = rgba(getComputedStyle(e).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255];
};
const bad = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const e = node.parentElement;
  if (!node.data.trim() || !e.checkVisibility() || ['SCRIPT', 'NOSCRIPT'].includes(e.tagName)) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) bad.push([node.data.trim(), ratio]);
}
return bad;
"""


if __name__ == "__main__":
    skip_without_browser()
    unittest.main()
