"""A running `lapidary serve` for the tests, and a small client on the standard library."""

import atexit
import contextlib
import functools
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

PROGRAM = os.environ["LAPIDARY_PROGRAM"]
# Sanitizers make everything several times slower.
PATIENCE_S = float(os.environ.get("LAPIDARY_TEST_PATIENCE_S", "60"))


def wait_for(condition, what="never came true"):
    """Until `condition` is true. How long that takes says nothing; only a fault lasts as long as the patience."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(what() if callable(what) else what)
        time.sleep(0.01)


@functools.cache
def with_http_threads(arguments):
    """The arguments with as many as LAPIDARY_HTTP_THREADS says, where it is set."""
    threads = os.environ.get("LAPIDARY_HTTP_THREADS")
    if threads is None:
        return arguments
    kept = list(arguments)
    if "--http-threads" in kept:
        at = kept.index("--http-threads")
        del kept[at:at + 2]
    return [*kept, "--http-threads", threads]


def endless():
    """Arguments for a server whose answers no machine ends within a test: the demo model with positions for that."""
    demo = pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    for file in demo.iterdir():
        if file.name != "config.json":
            os.symlink(file, os.path.join(folder, file.name))
    config = json.loads((demo / "config.json").read_text())
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump({**config, "max_position_embeddings": ENDLESS_TOKENS}, out)
    return "-m", folder


ENDLESS_TOKENS = 250_000
ENDLESS = {"prompt": "1, 2, 3,", "max_tokens": ENDLESS_TOKENS, "ignore_eos": True}


class Server:
    """The program serving the demo model, or `-m DIR` among the arguments, on a free port."""

    def __init__(self, *arguments, port=0, env=None):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--port", str(port), *with_http_threads(arguments)],
            stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, **(env or {})})
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on http://.*:(\d+)\n", line)
        if not found:
            self.process.wait()
            self.process.stdout.close()
            with self.log:
                raise AssertionError(f"did not start: {line!r} {self.log_text()}")
        self.port = int(found.group(1))

    def log_text(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()

    def stop(self):
        """Drains and ends it; returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGKILL)
                self.process.wait()
        self.process.stdout.close()
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        status = self.stop()
        with self.log:
            if status != 0:
                raise AssertionError(f"exit status {status}: {self.log_text()[-4000:]}")

    # One request on a connection of its own.

    def request(self, method, path, body=None, headers=None, timeout=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout or PATIENCE_S)
        with contextlib.closing(connection):
            data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()

    def post(self, path, body, headers=None):
        """Status and decoded JSON."""
        status, _, data = self.request("POST", path, body, headers)
        return status, json.loads(data)

    def chat(self, messages, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.ok("/v1/chat/completions", {"messages": messages, **fields})

    def complete(self, prompt, **fields):
        return self.ok("/v1/completions", {"prompt": prompt, **fields})

    def ok(self, path, body):
        status, answer = self.post(path, body)
        if status != 200:
            raise AssertionError(f"status {status}: {answer}")
        return answer

    def stream(self, path, body):
        """Chunks of a streamed answer; checks that it ends with [DONE]."""
        with self.open_stream(path, body) as stream:
            return list(stream)

    def stream_chat(self, messages, **fields):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.stream("/v1/chat/completions", {"messages": messages, **fields})

    @contextlib.contextmanager
    def endless_answer(self):
        """While it is open an answer is computed, or waits, that does not end: for servers with endless().

        It is not streamed: nobody would read it."""
        before = self.metrics()["lapidary_answers_submitted_total"]
        data = json.dumps(ENDLESS).encode()
        with contextlib.closing(socket.create_connection(("127.0.0.1", self.port))) as s:
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            wait_for(lambda: self.metrics()["lapidary_answers_submitted_total"] > before)
            yield

    def open_stream(self, path, body, rcvbuf=None):
        return Stream(self.port, path, {**body, "stream": True}, rcvbuf)

    def metrics(self):
        """Name, with labels, -> value."""
        _, _, text = self.request("GET", "/metrics")
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in text.decode().splitlines() if line and not line.startswith("#")}

    def busy(self):
        """Answers running, waiting and paused, and blocks they hold."""
        m = self.metrics()
        return (m["lapidary_requests_running"], m["lapidary_requests_waiting"], m["lapidary_requests_paused"],
                m['lapidary_kv_blocks_used{group="sliding"}'] + m['lapidary_kv_blocks_used{group="full"}'])

    def wait_until_idle(self):
        """Seconds until nothing runs, waits or holds a block."""
        start = time.monotonic()
        wait_for(lambda: not any(self.busy()), lambda: f"still busy: running, waiting, paused, blocks = {self.busy()}")
        return time.monotonic() - start


class Stream:
    """Server-sent events of one answer, as they come."""

    def __init__(self, port, path, body, rcvbuf=None):
        self.socket = socket.socket()
        if rcvbuf:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(("127.0.0.1", port))
        data = json.dumps(body).encode()
        self.socket.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                            b"Content-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
        self.comments = 0
        self.done = False
        self.error = None
        self._response = None

    def response(self):
        if self._response is None:
            self._response = http.client.HTTPResponse(self.socket)
            self._response.begin()
        return self._response

    def __iter__(self):
        response = self.response()
        if response.status != 200:
            raise AssertionError(f"status {response.status}: {response.read()}")
        for line in response:
            line = line.decode("utf-8").rstrip("\n")
            if line.startswith(":"):
                self.comments += 1
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                self.done = True
                return
            chunk = json.loads(line[6:])
            if "error" in chunk:
                self.error = chunk["error"]
                return
            yield chunk
        raise AssertionError("the stream ended without [DONE]")

    def close(self):
        if self._response is not None:
            self._response.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def joined(chunks, field="content", index=0):
    """A field of the deltas, or `text` of completions, put together."""
    text = ""
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["index"] == index:
                text += (choice["text"] if field == "text" else choice["delta"].get(field)) or ""
    return text


def calls_of(chunks):
    """Tool calls put together from the deltas, by index."""
    calls = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for part in choice["delta"].get("tool_calls", []):
                call = calls.setdefault(part["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += part.get("id", "")
                call["name"] += part["function"].get("name", "")
                call["arguments"] += part["function"].get("arguments", "")
    return [calls[index] for index in sorted(calls)]


def finish_of(chunks, index=0):
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]
               if choice["index"] == index and choice["finish_reason"]]
    assert len(reasons) == 1, reasons
    return reasons[0]


def run_all(count, work):
    """work(i) for each i in a thread of its own; raises what any of them raised."""
    failures = []

    def guarded(i):
        try:
            work(i)
        except BaseException as failure:  # told below, on the thread that asked
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the current weather for a location",
        "parameters": {"type": "object",
                       "properties": {"location": {"type": "string", "description": "City name"}},
                       "required": ["location"]},
    },
}
