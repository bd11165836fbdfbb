"""HTTP as hostile and broken clients speak it: always a 4xx or a closed connection, and the next request is served."""

import contextlib
import json
import socket
import time
import unittest

from lapidary_server import PATIENCE_S, Server, wait_for

CHAT = b'{"messages":[{"role":"user","content":"Hi"}],"max_tokens":2}'


class Http(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--header-timeout", "600", "--max-body-mb", "1")

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        assert status == 0, cls.server.log_text()

    def tearDown(self):
        self.assertEqual(self.server.request("GET", "/health")[0], 200)

    def raw(self, *pieces, half_close=False):
        """All that comes back for bytes sent as they are, until the server closes."""
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.server.port))) as s:
            s.settimeout(PATIENCE_S)
            answer = b""
            try:
                for piece in pieces:
                    s.sendall(piece)
                if half_close:
                    s.shutdown(socket.SHUT_WR)
                while data := s.recv(65536):
                    answer += data
            except (ConnectionResetError, BrokenPipeError):
                pass
            return answer

    def status(self, *pieces, **how):
        answer = self.raw(*pieces, **how)
        return int(answer.split(b" ", 2)[1]) if answer else None

    def post(self, *headers, body=CHAT, path=b"/v1/chat/completions", version=b"1.1"):
        return b"POST " + path + b" HTTP/" + version + b"\r\n" + b"".join(h + b"\r\n" for h in headers) + b"\r\n" + body

    def test_smuggling_shapes_are_refused(self):
        length = b"Content-Length: %d" % len(CHAT)
        host = b"Host: x"
        for headers in ([host, length, b"Transfer-Encoding: chunked"], [host, b"Transfer-Encoding: chunked", length],
                        [host, length, length], [host, length, b"Content-Length: 5"],
                        [host, b"Content-Length: 5, 5"], [host, b"Content-Length: +5"], [host, b"Content-Length: -1"],
                        [host, b"Content-Length: 5 5"], [host, b"Content-Length: 0x5"], [host, b"Content-Length:"],
                        [host, b"Content-Length: 99999999999999999999999"],
                        [host, b"Transfer-Encoding: identity"], [host, b"Transfer-Encoding: chunked, identity"],
                        [host, b"Transfer-Encoding: gzip, chunked"], [host, b"Transfer-Encoding: xchunked"],
                        [host, b"Transfer-Encoding : chunked", length], [host, b" Transfer-Encoding: chunked", length],
                        [host, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
                        [b"Host: x y", length], [host, host, length], [length], [host, length, b"bad header"], [host, length, b"a\x00b: c"],
                        [host, length, b"Authorization: a", b"Authorization: b"]):
            with self.subTest(headers=headers):
                status = self.status(self.post(*headers))
                self.assertTrue(status is None or 400 <= status <= 501, status)
        self.assertEqual(self.status(self.post(b"Transfer-Encoding: chunked", version=b"1.0")), 400)

    def test_chunked_bodies(self):
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(CHAT), CHAT)
        headers = (b"Host: x", b"Transfer-Encoding: chunked", b"Connection: close")
        answer = self.raw(self.post(*headers, body=chunks))
        self.assertTrue(answer.startswith(b"HTTP/1.1 200"), answer)
        for body in (b"zz\r\n", b"ffffffffffffffffff\r\n", b"5\r\nabc", b"3\r\nabcX", b"-1\r\n", b"5;" + b"x" * 100_000):
            status = self.status(self.post(*headers, body=body), half_close=True)
            self.assertTrue(status is None or 400 <= status < 500, (body[:20], status))

    def test_malformed_requests(self):
        for data in (b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"\x00" * 100,
                     b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", b"GET http://evil/ HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"G" * 100_000, b"GET /%ff HTTP/1.1\nHost: x\n\n",
                     b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 20_000 + b"\r\n",
                     b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"):
            with self.subTest(data=data[:40]):
                status = self.status(data)
                self.assertTrue(status is None or 400 <= status <= 505, status)

    def test_large_bodies(self):
        length = 100 << 20
        head = self.post(b"Host: x", b"Content-Length: %d" % length, body=b"")
        self.assertEqual(self.status(head), 413)
        self.assertEqual(self.status(head, b"x" * (4 << 20)), 413)
        endless = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
        status = self.status(self.post(b"Host: x", b"Transfer-Encoding: chunked", body=b""), endless, endless, endless)
        self.assertIn(status, (413, None))
        expect = self.post(b"Host: x", b"Content-Length: %d" % length, b"Expect: 100-continue", body=b"")
        self.assertEqual(self.status(expect), 413)

    def test_expect_continue(self):
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.server.port))) as s:
            s.settimeout(PATIENCE_S)
            s.sendall(self.post(b"Host: x", b"Content-Length: %d" % len(CHAT), b"Expect: 100-continue", body=b""))
            self.assertEqual(s.recv(100), b"HTTP/1.1 100 Continue\r\n\r\n")
            s.sendall(CHAT)
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 200"))

    def test_slow_headers_are_cut(self):
        with Server("--header-timeout", "1") as server, \
                contextlib.closing(socket.create_connection(("127.0.0.1", server.port))) as s:
            with self.assertRaises((ConnectionResetError, BrokenPipeError)):
                for byte in b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: " + b"a" * 10_000:
                    s.sendall(bytes([byte]))
                    time.sleep(0.05)

    def test_hostile_json(self):
        deep = b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        for body in (deep, b"[" * 500_000, b'{"a":' * 100_000, b'{"temperature":1e999,' + CHAT[1:],
                     b'{"max_tokens":123456789012345678901234567890,' + CHAT[1:], b'{"seed":-1e400,' + CHAT[1:],
                     CHAT.replace(b"Hi", b"\xed\xa0\x80"), CHAT.replace(b"Hi", b"\xc0\xaf"), CHAT.replace(b"Hi", b"a\x00b"),
                     CHAT.replace(b"Hi", b"\\ud800"), CHAT + b"x", CHAT[:-1], b"\xef\xbb\xbf" + CHAT + b"}",
                     b'{"n":NaN,' + CHAT[1:], b'{"stop":' + json.dumps(["x"] * 1000).encode() + b"," + CHAT[1:]):
            with self.subTest(body=body[:40]):
                status, _, data = self.server.request("POST", "/v1/chat/completions", body)
                self.assertEqual(status, 400, data[:200])
                self.assertTrue(json.loads(data)["error"]["message"])
                self.assertLess(len(data), 2000)
        # A zero character is text like any other when it is escaped.
        self.assertEqual(self.server.request("POST", "/v1/chat/completions", CHAT.replace(b"Hi", b"\\u0000"))[0], 200)

    def test_methods_and_paths(self):
        self.assertEqual(self.server.request("GET", "/nothing")[0], 404)
        status, headers, _ = self.server.request("GET", "/v1/chat/completions")
        self.assertEqual((status, headers["Allow"]), (405, "POST"))
        self.assertEqual(self.server.request("DELETE", "/health")[0], 405)
        status, headers, data = self.server.request("HEAD", "/health")
        self.assertEqual((status, data), (200, b""))
        self.assertEqual(self.server.request("GET", "/health?x=1")[0], 200)
        status, _, data = self.server.request("GET", "/v1/models")
        (model,) = json.loads(data)["data"]
        self.assertEqual(json.loads(self.server.request("GET", "/v1/models/" + model["id"])[2]), model)
        self.assertEqual(self.server.request("GET", "/v1/models/other")[0], 404)
        self.assertEqual(self.server.request("OPTIONS", "/v1/models")[0], 405)

    def test_requests_sent_ahead_are_answered_in_order(self):
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.server.port))) as s:
            s.settimeout(PATIENCE_S)
            one = self.post(b"Host: x", b"Content-Length: %d" % len(CHAT))
            s.sendall(one * 3 + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b""
            while data := s.recv(65536):
                answer += data
        self.assertEqual(answer.count(b"HTTP/1.1 200"), 4)
        self.assertEqual(answer.count(b"chat.completion"), 3)
        self.assertTrue(answer.endswith(b'{"status":"ok"}'))

    def test_http_1_0_streams_to_the_end_of_the_connection(self):
        body = CHAT[:-1] + b',"stream":true}'
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.server.port))) as s:
            s.settimeout(PATIENCE_S)
            s.sendall(self.post(b"Content-Length: %d" % len(body), body=body, version=b"1.0"))
            answer = b""
            while data := s.recv(65536):
                answer += data
        self.assertTrue(answer.startswith(b"HTTP/1.0 200"), answer)
        self.assertNotIn(b"chunked", answer.lower().split(b"\r\n\r\n")[0])
        self.assertTrue(answer.endswith(b"data: [DONE]\n\n"), answer)


class WhoMayAsk(unittest.TestCase):
    def test_api_keys(self):
        with Server("--api-key", "sesame", env={"LAPIDARY_API_KEY": "second"}) as server:
            for key in (None, "Bearer sesam", "Bearer sesamee", "Bearer", "Basic sesame", "sesame", "Bearer "):
                status, headers, data = server.request("GET", "/v1/models", headers={"Authorization": key} if key else {})
                self.assertEqual((status, headers["WWW-Authenticate"]), (401, "Bearer"), key)
                self.assertEqual(json.loads(data)["error"]["code"], "invalid_api_key")
            for key in ("Bearer sesame", "bearer second"):
                self.assertEqual(server.request("GET", "/v1/models", headers={"Authorization": key})[0], 200)
            self.assertEqual(server.request("GET", "/health")[0], 200)
            self.assertEqual(server.request("GET", "/metrics")[0], 401)
            self.assertEqual(server.request("GET", "/nothing")[0], 401)
            self.assertNotIn("sesame", server.log_text())

    def test_web_pages_elsewhere_need_leave(self):
        ask = {"Origin": "http://page.example", "Content-Type": "text/plain"}
        preflight = {"Origin": "http://page.example", "Access-Control-Request-Method": "POST"}
        with Server() as server:
            self.assertEqual(server.request("POST", "/v1/chat/completions", CHAT, ask)[0], 403)
            self.assertEqual(server.request("OPTIONS", "/v1/chat/completions", headers=preflight)[0], 403)
            own = {"Origin": f"http://127.0.0.1:{server.port}"}
            status, headers, _ = server.request("POST", "/v1/chat/completions", CHAT, own)
            self.assertEqual(status, 200)
            self.assertNotIn("Access-Control-Allow-Origin", headers)
            # A name that somebody points at this machine is not ours.
            rebound = {"Origin": "http://evil.example", "Host": "evil.example"}
            self.assertEqual(server.request("POST", "/v1/chat/completions", CHAT, rebound)[0], 403)
        with Server("--cors-origin", "http://page.example") as server:
            status, headers, _ = server.request("POST", "/v1/chat/completions", CHAT, ask)
            self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "http://page.example"))
            status, headers, _ = server.request("OPTIONS", "/v1/chat/completions", headers=preflight)
            self.assertEqual(status, 204)
            self.assertIn("POST", headers["Access-Control-Allow-Methods"])
            other = {"Origin": "http://other.example"}
            self.assertEqual(server.request("POST", "/v1/chat/completions", CHAT, other)[0], 403)


class Log(unittest.TestCase):
    def test_tells_what_happened_without_what_was_said(self):
        with Server() as server:
            server.chat("Repeat exactly: lamp river")
            server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "secret"}], "n": 0})
            wait_for(lambda: server.log_text().count("event=request") == 2)
            log = server.log_text()
        self.assertIn("endpoint=chat_completions status=200 finish=stop", log)
        self.assertIn("status=400 finish=refused", log)
        for word in ("lamp", "river", "secret"):
            self.assertNotIn(word, log)


if __name__ == "__main__":
    unittest.main()
