"""Short versions of tools/load_test.py. Whether answers are right and everything is given back, never how fast."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import unittest

from lapidary_server import PATIENCE_S, Server, endless, run_all, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import load_test as load  # noqa: E402


class Load(unittest.TestCase):
    def test_streams_equal_their_answers_alone(self):
        with Server("--parallel", "16", "--ctx", "1024", "--log-level", "error") as server:
            result = load.streams(server, count=24, seconds=2, kinds=16)
            self.assertGreaterEqual(result["answers"], 24)
            server.wait_until_idle()

    def test_silent_connections_hold_up_nobody(self):
        with Server("--header-timeout", "600") as server:
            self.assertGreaterEqual(load.silent(server, count=200)["connections"], 200)

    def test_36_clients_that_go_away_leave_nothing_behind(self):
        with Server(*endless(), "--parallel", "4", "--log-level", "error") as server:
            load.disconnects(server, count=40, at_once=20)

            def all_cancelled():
                metrics = server.metrics()
                return 0 < metrics["lapidary_answers_submitted_total"] == metrics["lapidary_answers_cancelled_total"]
            wait_for(all_cancelled)

    def test_slow_readers_hold_up_nobody(self):
        with Server(*endless(), "--parallel", "2", "--stall-timeout", "1", "--log-level", "error") as server:
            load.slow(server, readers=5)
            self.assertEqual(server.metrics()["lapidary_answers_cancelled_total"], 5)

    def test_many_short_requests(self):
        with Server("--ctx", "512", "--log-level", "error") as server:
            result = load.short(server, count=400, clients=4)
            self.assertEqual(result["requests"], 400)

    def test_second_turns_are_cached_and_the_same(self):
        with Server() as server:
            result = load.turns(server, None)
            self.assertGreater(result["cached_tokens"], result["prompt_tokens"] - 200)


class Queue(unittest.TestCase):
    def test_a_full_queue_says_when_to_come_back(self):
        with Server(*endless(), "--parallel", "1", "--queue", "1") as server:
            with server.endless_answer(), server.endless_answer():
                status, headers, data = server.request("POST", "/v1/completions", {"prompt": "Hi"})
                self.assertEqual((status, json.loads(data)["error"]["code"]), (429, "queue_full"))
                self.assertGreaterEqual(int(headers["Retry-After"]), 1)
                status, answer = server.post("/v1/completions", {"prompt": "Hi", "n": 3})
                self.assertEqual((status, answer["error"]["param"]), (400, "n"))
            server.wait_until_idle()
            self.assertEqual(server.complete("The capital of France is", max_tokens=1)["usage"]["completion_tokens"], 1)


class Lifecycle(unittest.TestCase):
    def test_a_first_signal_lets_answers_end(self):
        server = Server("--drain-timeout", "600", "--stall-timeout", "600")
        # More than buffers between here and there hold, so that it is not at its end before it is read.
        request = {"prompt": "1, 2, 3,", "max_tokens": 600, "ignore_eos": True, "logprobs": 20}
        with server.open_stream("/v1/completions", request, rcvbuf=2048) as stream:
            chunks = iter(stream)
            seen = [next(chunks)]
            kept = socket.create_connection(("127.0.0.1", server.port))
            server.process.terminate()
            wait_for(lambda: server.request("GET", "/health")[0] == 503)
            status, answer = server.post("/v1/completions", {"prompt": "Hi"})
            self.assertEqual((status, answer["error"]["code"]), (503, "shutting_down"))
            seen += list(chunks)
            self.assertTrue(stream.done)
            self.assertEqual(seen[-1]["choices"][0]["finish_reason"], "length")
        self.assertEqual(server.stop(), 0)
        kept.close()

    def test_a_second_signal_cuts(self):
        server = Server(*endless(), "--drain-timeout", "600")
        with server.endless_answer():
            server.process.terminate()
            wait_for(lambda: "action=drain" in server.log_text())
            server.process.terminate()
            self.assertEqual(server.process.wait(PATIENCE_S), 0)
        self.assertEqual(server.stop(), 0)

    def test_signals_without_end_do_not_kill(self):
        """At every moment up to the last of the exit: a supervisor, or a user with a heavy hand, asks again."""
        for stop in (signal.SIGTERM, signal.SIGINT):
            for _ in range(4):
                server = Server("--log-level", "error")
                while server.process.poll() is None:
                    os.kill(server.process.pid, stop)  # not waited for yet, so its own
                self.assertEqual(server.stop(), 0)

    def test_killed_under_load_the_next_start_serves(self):
        server = Server(*endless(), "--parallel", "4")
        with contextlib.ExitStack() as answers:
            for _ in range(6):
                answers.enter_context(server.endless_answer())
            server.process.kill()
            server.process.wait()
        server.process.stdout.close()
        with Server(port=server.port) as again:
            self.assertIn("Paris", again.complete("The capital of France is", max_tokens=3)["choices"][0]["text"])

    def test_an_address_in_use_is_one_clear_line(self):
        with Server() as server:
            with self.assertRaises(AssertionError) as failure:
                Server(port=server.port)
            self.assertIn("lapidary: cannot listen on 127.0.0.1", str(failure.exception))


class KeepAlive(unittest.TestCase):
    def test_a_stream_that_waits_says_so(self):
        with Server(*endless(), "--parallel", "1", "--keep-alive-ms", "50") as server:
            with server.endless_answer():
                waiting = server.open_stream("/v1/completions", {"prompt": "1,", "max_tokens": 2})
                chunks = []
                reader = threading.Thread(target=lambda: chunks.extend(waiting))
                reader.start()
                wait_for(lambda: waiting.comments >= 3)
                self.assertEqual(chunks, [])
            reader.join()
            waiting.close()
            self.assertTrue(waiting.done)
            self.assertTrue(chunks)


class Concurrency(unittest.TestCase):
    def test_everything_at_once(self):
        """What a thread sanitizer should see: every endpoint, from many threads."""
        with Server("--parallel", "4", "--http-threads", "4", "--log-level", "error") as server:
            def client(i):
                kind = i % 6
                if kind == 0:
                    server.stream_chat("Hi", logprobs=True, top_logprobs=2, n=2)
                elif kind == 1:
                    server.chat("What is 4 + 5?", reasoning_effort="low")
                elif kind == 2:
                    server.complete(["1, 2,", "Once"], max_tokens=4, echo=True, logprobs=1)
                elif kind == 3:
                    server.metrics()
                    server.request("GET", "/health")
                elif kind == 4:
                    with server.open_stream("/v1/completions", {"prompt": "1,", "max_tokens": 900}) as stream:
                        next(iter(stream))
                else:
                    server.ok("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]})
            run_all(36, client)
            server.wait_until_idle()


if __name__ == "__main__":
    unittest.main()
