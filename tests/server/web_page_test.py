"""The web page in headless Chromium, with the demo model behind it. Skipped where there is no Chromium.

    web_page_test.py --screenshots DIR     writes the pictures of the README instead
"""

import os
import sys
import unittest

from browser import ENTER, ESCAPE, SHIFT, TAB, UP, Browser, skip_without_browser
from lapidary_server import Server, endless
from web_page import Page

# Without <turn|>, which ends an answer in a chat, and with the ids that end any text passed over.
LONG = '{"ignore_eos": true, "logit_bias": {"106": -100}, "max_tokens": 200000}'


class WebPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(*endless(), "--served-name", "demo")
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.stop()
        assert cls.server.stop() == 0, cls.server.log_text()

    def setUp(self):
        self.page = Page(self.browser, f"http://127.0.0.1:{self.server.port}/")
        self.browser.size(1000, 800)
        self.browser.system_theme("light")
        self.page.open()

    def tearDown(self):
        self.assertEqual(self.browser.complaints(), [])

    def test_files_and_their_headers(self):
        for path, kind in (("/", "text/html"), ("/app.js", "text/javascript"), ("/style.css", "text/css"),
                           ("/icon.svg", "image/svg+xml")):
            status, headers, body = self.server.request("GET", path)
            self.assertEqual((status, headers["Content-Type"].split(";")[0]), (200, kind))
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            self.assertEqual(headers["Referrer-Policy"], "no-referrer")
            self.assertEqual(headers["Cache-Control"], "no-cache")
            policy = headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'; script-src 'self'; style-src 'self'", policy)
            self.assertNotIn("unsafe", policy)
            again = self.server.request("GET", path, headers={"If-None-Match": headers["ETag"]})
            self.assertEqual((again[0], again[2]), (304, b""))
            self.assertEqual(self.server.request("GET", path, headers={"If-None-Match": '"other"'})[2], body)
        self.assertEqual(self.server.request("HEAD", "/")[2], b"")
        self.assertEqual(self.server.request("POST", "/", b"")[0], 405)
        with Server("--no-web") as plain:
            self.assertEqual(plain.request("GET", "/")[0], 404)
            self.assertEqual(plain.request("GET", "/app.js")[0], 404)

    def test_a_click_sends_and_the_answer_streams(self):
        self.assertEqual(self.browser.text("#model"), "demo")
        self.page.say("Tell me a tale")
        self.assertTrue(self.page.answers()[0].startswith("Once upon a time"))
        self.assertRegex(self.browser.text(".stats"), r"^\d+ tokens · [\d.]+ tokens/s · first after [\d.]+ m?s · prompt \d+")
        self.assertRegex(self.browser.text("#context"), r"^\d+ / 250,000 tokens$")
        self.assertEqual(self.browser.text("#status"), "The answer is complete.")

    def test_what_is_shown_grows_while_the_answer_is_written(self):
        self.page.set(more=LONG)
        self.page.say("Tell me a tale", wait=False)
        length = 0
        for _ in range(5):
            length = self.browser.wait("((length) => length > arguments[0] && length)"
                                       "(document.querySelector('.assistant > .md').textContent.length)", length)
            self.assertEqual(sum(self.server.busy()[:3]), 1)  # it also pauses for a moment
        self.assertRegex(self.browser.wait("document.querySelector('.stats').textContent"), "tokens/s$")
        self.browser.click("#stop")
        self.page.wait_for_answer()

    def test_stop_by_click_and_by_key(self):
        self.page.set(more=LONG)
        for stop in (lambda: self.browser.click("#stop"), lambda: self.browser.press(ESCAPE)):
            self.page.say("Tell me a tale", wait=False)
            self.browser.wait("document.querySelector('.assistant:last-child > .md').textContent.length > 30")
            self.assertEqual(sum(self.server.busy()[:3]), 1)  # it also pauses for a moment
            stop()
            self.page.wait_for_answer()
            self.server.wait_until_idle()
            self.assertEqual(self.browser.texts(".note")[-1], "Stopped.")
            self.assertTrue(self.page.answers()[-1].startswith("Once upon a time"))
        self.assertEqual(len(self.page.answers()), 2)

    def test_edit_and_resend(self):
        self.page.say("What is the capital of France?")
        self.page.say("What is the capital of Italy?")
        self.browser.click(".user .actions button")
        self.browser.run("document.querySelector('.edit textarea').value = ''")
        self.browser.type(".edit textarea", "What is the capital of Japan?")
        self.browser.click(".edit .primary")
        self.page.wait_for_answer()
        self.assertEqual(self.page.user_texts(), ["What is the capital of Japan?"])
        self.assertEqual(len(self.page.answers()), 1)
        self.assertIn("Tokyo", self.page.answers()[0])

    def test_editing_by_key_and_giving_up(self):
        self.page.say("What is the capital of France?")
        self.browser.press(UP)
        self.assertEqual(self.browser.run("return document.activeElement.value"), "What is the capital of France?")
        self.browser.press(ESCAPE)
        self.assertEqual(self.browser.run("return document.activeElement.textContent"), "Edit")
        self.assertEqual(self.page.user_texts(), ["What is the capital of France?"])

    def test_try_again_and_history(self):
        self.page.say("What is the capital of France?")
        self.browser.click(".assistant .actions button")
        self.page.wait_for_answer()
        self.assertEqual((len(self.page.user_texts()), len(self.page.answers())), (1, 1))
        self.assertIn("cached", self.browser.text(".stats"))

    def test_the_conversation_is_kept_and_cleared(self):
        self.page.say("What is the capital of France?")
        before = self.page.answers()
        self.page.open(forget=False)
        self.assertEqual((self.page.user_texts(), self.page.answers()), (["What is the capital of France?"], before))
        self.browser.click("#clear")
        self.browser.click("#clear-cancel")
        self.assertEqual(len(self.page.answers()), 1)
        self.browser.click("#clear")
        self.browser.click("#clear-dialog .primary")
        self.browser.wait("document.body.classList.contains('empty')")
        self.page.open(forget=False)
        self.assertEqual(self.page.user_texts(), [])

    def test_thinking_is_folded_away(self):
        self.browser.click("#think")
        self.page.say("What is 4 + 5?")
        self.assertEqual(self.page.answers(), ["4 + 5 = 9."])
        self.assertRegex(self.browser.text(".thought summary"), "^Thought( for .*)?$")  # no time when none passed
        self.assertEqual(self.browser.text(".thought .md"), "")  # not shown
        self.browser.click(".thought summary")
        self.assertIn("sum", self.browser.text(".thought .md"))

    def test_settings_are_sent_and_kept(self):
        self.page.set(max_completion_tokens="3", temperature="0")
        self.page.open(forget=False)
        self.page.say("Tell me a tale")
        self.assertTrue(self.browser.text(".stats").startswith("3 tokens"))
        self.assertIn("Cut off here", self.browser.text(".note"))
        # What the server refuses is told in its words.
        self.page.set(more='{"temprature": 1}')
        self.page.say("Tell me a tale")
        self.assertIn("temprature", self.browser.texts(".notes .error")[-1])
        self.browser.complaints()  # Chromium logs the status 400
        # What is not JSON is not taken.
        self.browser.click("#settings")
        self.browser.type("#settings-dialog [name=more]", "{")
        self.browser.click("#settings-dialog .primary")
        self.assertTrue(self.browser.run("return document.getElementById('settings-dialog').open"))
        self.browser.click("#settings-reset")
        self.browser.click("#settings-dialog .primary")
        self.assertFalse(self.browser.run("return document.getElementById('settings-dialog').open"))

    def test_a_system_prompt_and_a_tool(self):
        tool = ('{"tools": [{"type": "function", "function": {"name": "get_weather", "description": "Get the current '
                'weather for a location", "parameters": {"type": "object", "properties": {"location": {"type": "string", '
                '"description": "City name"}}, "required": ["location"]}}}]}')
        self.page.set(system="You are a helpful assistant.", more=tool)
        self.page.say("What is the weather in Tokyo?")
        self.assertEqual(self.browser.text(".call summary"), "Call of get_weather")
        self.browser.click(".call summary")
        self.assertIn('"location": "Tokyo"', self.browser.text(".call pre"))
        self.browser.type(".results textarea", '{"temperature": 21, "condition": "sunny"}')
        self.browser.click(".results .primary")
        self.page.wait_for_answer()
        self.assertEqual(self.browser.texts(".tool summary"), ["Result of get_weather"])
        self.assertTrue(self.page.answers()[-1])
        self.assertEqual(self.browser.find_all(".notes .error, .results"), [])

    def test_by_keyboard_alone(self):
        self.browser.press("W", "h", "o", (SHIFT, ENTER), "H", "i")
        self.assertEqual(self.browser.run("return document.getElementById('prompt').value"), "Who\nHi")
        self.browser.press(ENTER)
        self.page.wait_for_answer()
        self.assertEqual(self.page.user_texts(), ["Who\nHi"])
        # All that can be clicked can be reached, has a name, and shows that it has the focus.
        reached = []
        for _ in range(12):
            self.browser.press(TAB)
            reached.append(self.browser.run(
                "const e = document.activeElement, s = getComputedStyle(e);"
                "return [e.id || e.textContent, !!(e.ariaLabel || e.textContent || e.labels?.length),"
                " s.outlineStyle !== 'none' || e.id === 'prompt' || e === document.body]"))
        self.assertTrue(all(named and visible for _, named, visible in reached), reached)
        self.assertLessEqual({"think", "send", "clear", "settings", "theme", "log", "Edit", "Try again"},
                             {name for name, _, _ in reached}, reached)

    def test_light_and_dark(self):
        dark = "getComputedStyle(document.body).backgroundColor"
        light_colour = self.browser.run(f"return {dark}")
        self.browser.system_theme("dark")
        dark_colour = self.browser.wait(f"{dark} !== {light_colour!r} && {dark}")
        self.browser.click("#theme")
        self.assertEqual(self.browser.run(f"return {dark}"), light_colour)
        self.page.open(forget=False)
        self.assertEqual(self.browser.run(f"return {dark}"), light_colour)
        self.browser.click("#theme")
        self.assertEqual(self.browser.run(f"return {dark}"), dark_colour)
        self.browser.system_theme("light")
        self.browser.wait(f"{dark} === {light_colour!r}", what="follows the system again")


class Keys(unittest.TestCase):
    def test_the_page_asks_for_the_key_and_forgets_it_with_the_tab(self):
        with Server("--api-key", "sesame") as server:
            browser = Browser()
            try:
                page = Page(browser, f"http://127.0.0.1:{server.port}/")
                page.open()
                browser.wait("document.getElementById('key-dialog').open")
                browser.type("#key-dialog [name=key]", "wrong")
                browser.press(ENTER)
                browser.wait("document.getElementById('key-dialog').open && !document.getElementById('key-wrong').hidden")
                browser.type("#key-dialog [name=key]", "sesame")
                browser.press(ENTER)
                browser.wait("document.getElementById('model').textContent === 'demo'")
                page.say("What is the capital of France?")
                self.assertIn("Paris", page.answers()[0])
                self.assertNotIn("sesame", browser.run("return JSON.stringify(localStorage)"))
                self.assertIn("sesame", browser.run("return JSON.stringify(sessionStorage)"))
            finally:
                browser.stop()


def screenshots(folder):
    os.makedirs(folder, exist_ok=True)
    with Server() as server:
        browser = Browser()
        try:
            page = Page(browser, f"http://127.0.0.1:{server.port}/")
            for name, theme, size in (("web-light", "light", (880, 760, 1)), ("web-dark", "dark", (880, 760, 1)),
                                      ("web-phone", "light", (390, 720, 1, True))):
                browser.size(*size)
                browser.system_theme(theme)
                page.open()
                browser.click("#think")
                page.say("What is 4 + 5?")
                browser.click(".thought summary")
                browser.click("#think")
                page.say("Tell me a tale")
                browser.run("document.activeElement.blur(); document.getElementById('log').scrollTop = 1e9;")
                browser.screenshot(os.path.join(folder, name + ".png"))
        finally:
            browser.stop()


if __name__ == "__main__":
    skip_without_browser()
    if sys.argv[1:2] == ["--screenshots"]:
        screenshots(sys.argv[2])
    else:
        unittest.main()
