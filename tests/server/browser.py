"""Headless Chromium for the tests of the web page, driven by the WebDriver protocol, on the standard library."""

import base64
import contextlib
import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from lapidary_server import PATIENCE_S

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # WebDriver's name for a reference
ENTER, ESCAPE, SHIFT, TAB, UP = "\ue007", "\ue00c", "\ue008", "\ue004", "\ue013"


def skip_without_browser():
    """Ends the test program as skipped where there is no Chromium."""
    if not CHROMIUM or not DRIVER:
        print("skipped: no chromium and chromedriver on PATH (tools/install_deps.sh test installs them)")
        sys.exit(77)


class Browser:
    def __init__(self):
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, "HOME": self.home.name})
        self.session = ""
        try:
            self.port = self._port()
            self.session = self._begin()
        except BaseException:
            self.stop()
            raise

    def _port(self):
        for line in self.driver.stdout:
            if found := re.search(r"started successfully on port (\d+)", line):
                return int(found.group(1))
        raise AssertionError("chromedriver did not start")

    def _begin(self):
        arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-background-networking", "--force-color-profile=srgb", "--window-size=1000,800"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # it refuses to run as root otherwise
        capabilities = {"browserName": "chrome", "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
                        "goog:loggingPrefs": {"browser": "ALL"}}
        return self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2 * PATIENCE_S)
        with contextlib.closing(connection):
            data = None if method in ("GET", "DELETE") else json.dumps(body or {})
            connection.request(method, path, data, {"Content-Type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{path}: {value['error']}: {value['message'].splitlines()[0]}")
        return value

    def do(self, method, path, **body):
        return self.call(method, f"/session/{self.session}{path}", body)

    def stop(self):
        if self.session:
            with contextlib.suppress(OSError, AssertionError):
                self.do("DELETE", "")
        self.driver.terminate()
        self.driver.wait()
        self.driver.stdout.close()
        self.home.cleanup()

    def go(self, url):
        self.do("POST", "/url", url=url)

    def run(self, script, *arguments):
        """What `script`, the body of a function, returns; may await."""
        wrapped = ("const done = arguments[arguments.length - 1];"
                   "(async function () {" + script + "}).apply(null, [...arguments].slice(0, -1))"
                   ".then((value) => done([value ?? null]), (error) => done(String(error.stack || error)))")
        result = self.do("POST", "/execute/async", script=wrapped, args=list(arguments))
        if isinstance(result, str):
            raise AssertionError(result)
        return result[0]

    def find_all(self, css):
        return [found[ELEMENT] for found in self.do("POST", "/elements", using="css selector", value=css)]

    def find(self, css):
        return self.do("POST", "/element", using="css selector", value=css)[ELEMENT]

    def click(self, css):
        """A real click: fails on what is hidden or covered."""
        self.do("POST", f"/element/{self.find(css)}/click")

    def text(self, css):
        return self.do("GET", f"/element/{self.find(css)}/text")

    def texts(self, css):
        return [self.do("GET", f"/element/{one}/text") for one in self.find_all(css)]

    def type(self, css, text):
        self.do("POST", f"/element/{self.find(css)}/value", text=text)

    def press(self, *keys):
        """Keys pressed one after another, wherever the focus is; a tuple is held down together."""
        events = []
        for key in keys:
            chord = key if isinstance(key, tuple) else (key,)
            events += [{"type": "keyDown", "value": one} for one in chord]
            events += [{"type": "keyUp", "value": one} for one in reversed(chord)]
        self.do("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": events}])

    def wait(self, condition, *arguments, what=""):
        """Until the JavaScript expression is true; its value."""
        deadline = time.monotonic() + PATIENCE_S
        while not (value := self.run(f"return {condition}", *arguments)):
            if time.monotonic() > deadline:
                raise AssertionError(f"never came true: {what or condition}\n{self.run('return document.body.innerText')}")
            time.sleep(0.02)
        return value

    def devtools(self, command, **parameters):
        return self.do("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def size(self, width, height, scale=1, mobile=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                      mobile=mobile)

    def system_theme(self, theme):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def complaints(self):
        """Errors and breaches of the policy that the browser logged since the last call."""
        return [entry["message"] for entry in self.do("POST", "/se/log", type="browser") if entry["level"] == "SEVERE"]

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.do("GET", "/screenshot")))
