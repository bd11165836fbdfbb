"""The web page of a real server with chat answers that a test writes: any text, any pause, any failure."""

import http.client
import json
import queue
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lapidary_server import PATIENCE_S

# In an answer:
DROP = object()     # the connection breaks here
ENDLESS = object()  # more text, until the reader goes away


def answer(*steps, finish="stop"):
    """A streamed answer: texts, deltas, events to wait for, DROP, ENDLESS."""
    def write(handler):
        handler.begin(200, "text/event-stream")
        tokens = 0
        for step in steps:
            if isinstance(step, threading.Event):
                step.wait(PATIENCE_S)
            elif step is DROP:
                return handler.drop()
            elif step is ENDLESS:
                while True:  # until writing fails
                    handler.event({"choices": [{"index": 0, "delta": {"content": "more "}, "finish_reason": None}]})
                    time.sleep(0.01)
            else:
                delta = {"content": step} if isinstance(step, str) else step
                handler.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None, "token_ids": [7]}]})
                tokens += 1
        handler.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        usage = {"prompt_tokens": 10, "completion_tokens": tokens, "total_tokens": 10 + tokens}
        handler.event({"choices": [], "usage": usage})
        handler.piece(b"data: [DONE]\n\n")
    return write


def refusal(status, message, **headers):
    def write(handler):
        body = json.dumps({"error": {"message": message, "type": "x", "param": None, "code": None}}).encode()
        handler.begin(status, "application/json", **headers)
        handler.piece(body)
    return write


def raw(status, body, content_type="text/html"):
    def write(handler):
        handler.begin(status, content_type)
        handler.piece(body)
    return write


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def begin(self, status, content_type, **headers):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def piece(self, data):
        self.wfile.write(data)
        self.wfile.flush()

    def event(self, chunk):
        self.piece(b"data: " + json.dumps(chunk).encode() + b"\n\n")

    def drop(self):
        # Closing without lingering resets the connection, as a broken line does.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def do_GET(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind.port, timeout=PATIENCE_S)
        connection.request("GET", self.path)
        response = connection.getresponse()
        data = response.read()
        connection.close()
        self.send_response(response.status)
        for name, value in response.getheaders():
            self.send_header(name, value)
        self.end_headers()
        self.piece(data)

    def do_POST(self):
        self.server.keys.append(self.headers["Authorization"])
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        try:
            self.server.answers.get_nowait()(self)
        except queue.Empty:
            refusal(500, "the test has no answer left")(self)
        except (BrokenPipeError, ConnectionResetError):
            self.server.gone.set()


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = behind
        self.answers = queue.Queue()
        self.bodies, self.keys = [], []  # of the chat requests so far
        self.gone = threading.Event()  # a client went away in the middle of an answer
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request, client_address):
        pass  # a browser may hang up whenever it likes

    def stop(self):
        self.shutdown()
        self.thread.join()
        self.server_close()
