"""deploy/haproxy: two replicas behind HAProxy, really started on loopback. Skipped where there is no haproxy."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import unittest

from lapidary_server import ENDLESS_TOKENS, Server, Stream, endless, wait_for

CONFIG = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "haproxy" / "haproxy.cfg"
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/sbin")


def free_port():
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Front:
    """HAProxy in front of two servers."""

    request = Server.request
    post = Server.post

    def __init__(self, a, b):
        self.port = free_port()
        self.process = subprocess.Popen([HAPROXY, "-f", str(CONFIG)], stderr=subprocess.DEVNULL, env={
            **os.environ, "LISTEN": f"127.0.0.1:{self.port}", "REPLICA_A": f"127.0.0.1:{a.port}",
            "REPLICA_B": f"127.0.0.1:{b.port}"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def ask(self, messages, headers=None, **fields):
        """Which replica answered, and what."""
        status, got, data = self.request("POST", "/v1/chat/completions", {"messages": messages, **fields}, headers)
        if status != 200:
            raise AssertionError((status, data))
        return {name.lower(): value for name, value in got.items()}["x-served-by"], json.loads(data)

    def wait_for(self, condition):
        def holds():
            with contextlib.suppress(OSError, AssertionError):
                return condition()
        wait_for(holds)


def user(text):
    return {"role": "user", "content": text}


class HaproxyInFront(unittest.TestCase):
    def setUp(self):
        self.a, self.b = Server(*endless(), "--parallel", "4"), Server(*endless(), "--parallel", "4")
        self.front = Front(self.a, self.b)
        self.front.wait_for(lambda: self.front.request("GET", "/health")[0] == 200)

    def tearDown(self):
        self.front.__exit__()
        for server in (self.a, self.b):
            self.assertEqual(server.stop(), 0)

    def test_conversations_stick_and_spread(self):
        where = {}
        for i in range(12):
            messages = [user(f"Repeat exactly: lamp {i} " + "stone river " * 40)]
            first, answer = self.front.ask(messages, max_tokens=4)
            messages += [{"role": "assistant", "content": answer["choices"][0]["message"]["content"] or "x"},
                         user("Hi")]
            second, answer = self.front.ask(messages, max_tokens=4)
            self.assertEqual(second, first)
            self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
            where[first] = where.get(first, 0) + 1
        self.assertEqual(set(where), {"a", "b"}, where)
        # Behind a system message that all share, the user's first message tells them apart.
        system = {"role": "system", "content": "Be brief."}
        names = [self.front.ask([system, user(f"Hi {i}")], max_tokens=1)[0] for i in range(12)]
        self.assertEqual(set(names), {"a", "b"})
        again = [self.front.ask([system, user(f"Hi {i}"), {"role": "assistant", "content": "x"}, user("y")],
                                max_tokens=1)[0] for i in range(12)]
        self.assertEqual(again, names)
        named = {self.front.ask([user(f"Hi {i}")], {"X-Conversation-Id": "one"}, max_tokens=1)[0] for i in range(8)}
        self.assertEqual(len(named), 1)

    def test_a_replica_that_stops_finishes_and_nobody_notices(self):
        text = next(f"1, 2, 3, {i}" for i in range(100) if self.front.ask([user(f"1, 2, 3, {i}")], max_tokens=1)[0] == "a")
        body = {"messages": [user(text)], "max_tokens": 300, "ignore_eos": True, "stream": True,
                "return_token_ids": True}
        with Stream(self.front.port, "/v1/chat/completions", body) as stream:
            chunks = iter(stream)
            seen = [next(chunks)]
            self.a.process.terminate()
            self.front.wait_for(lambda: "action=drain" in self.a.log_text())
            # From this moment on, while HAProxy has not seen it yet too.
            for i in range(20):
                name, _ = self.front.ask([user(f"Hi {i}")], max_tokens=1)
                self.assertEqual(name, "b")
            seen += chunks
            self.assertEqual(sum(len(chunk["choices"][0].get("token_ids", [])) for chunk in seen), 300)
            self.assertTrue(stream.done)
        self.assertEqual(self.a.stop(), 0)
        self.assertEqual(self.front.ask([user(text)], max_tokens=1)[0], "b")
        self.a = Server(port=self.a.port)
        self.front.wait_for(lambda: self.front.ask([user(text)], max_tokens=1)[0] == "a")

    def test_a_client_that_goes_away_ends_its_answer_behind_the_proxy(self):
        for stream in (True, False):
            body = {"messages": [user("1, 2, 3,")], "max_tokens": ENDLESS_TOKENS, "ignore_eos": True, "stream": stream}
            data = json.dumps(body).encode()
            with contextlib.closing(socket.create_connection(("127.0.0.1", self.front.port))) as s:
                s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
                self.front.wait_for(lambda: self.a.busy()[0] + self.b.busy()[0] > 0)
            for server in (self.a, self.b):
                server.wait_until_idle()


if __name__ == "__main__":
    if HAPROXY is None:
        print("no haproxy here")
        sys.exit(77)  # skipped
    unittest.main()
