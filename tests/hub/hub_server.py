#!/usr/bin/env python3
"""A Hugging Face compatible hub on 127.0.0.1 that can misbehave. Standard library only.

hub_server.py CONFIG.json: serves until its standard input ends; prints "PORT CDN_PORT". CONFIG:
  root       folder whose files are the repository "owner/model" at branch "main"
  log        file that gets one JSON object for each request
  token      if set, every request to the hub itself must carry it
  page_size  entries of one page of the tree listing
  extra      entries added to the tree listing as they are
  faults     list of {"on": NAME, "mode": MODE, "times": N, ...}: the next N requests (default: all) for the file NAME, or
             for "@revision" or "@tree", go wrong. The first entry with times left counts. Modes and their keys:
    status (status, retry_after, message)   an error answer
    raw (body)                              this text with status 200
    cut (bytes)                             the connection ends after so many bytes of the body
    reset                                   the connection is reset before any answer
    stall (bytes, seconds)                  silence after so many bytes
    slow (seconds)                          a pause after each 16 KiB
    ignore_range                            200 and the whole file
    ignore_range_cut (bytes)                both
    corrupt                                 one bit flipped
    longer, shorter                         a file one byte longer or shorter, consistently
    content_range (value)                   this Content-Range
    redirect (to)                           302; "cdn": to the second port; "loop": to itself; else a URL
"""
import hashlib
import json
import os
import re
import socket
import struct
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "owner/model"


class Hub:
    def __init__(self, config):
        self.config = config
        self.lock = threading.Lock()
        self.faults = [dict(fault) for fault in config.get("faults", [])]
        self.log = open(config["log"], "a", encoding="utf-8")
        self.ports = []
        self.over = threading.Event()

    def fault(self, name):
        with self.lock:
            for fault in self.faults:
                if fault["on"] == name and fault.get("times", 1) > 0:
                    if "times" in fault:
                        fault["times"] -= 1
                    return fault
        return {"mode": "ok"}

    def record(self, entry):
        with self.lock:
            self.log.write(json.dumps(entry) + "\n")
            self.log.flush()

    def content(self, name):
        path = os.path.join(self.config["root"], name)
        if "/" in name or not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return file.read()

    def tree(self):
        entries = []
        for name in sorted(os.listdir(self.config["root"])):
            data = self.content(name)
            git = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
            entry = {"type": "file", "path": name, "size": len(data), "oid": git}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
                entry["oid"] = "f" * 40
            entries.append(entry)
        return entries + self.config.get("extra", [])


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub = None

    def log_message(self, *arguments):
        pass

    def is_cdn(self):
        return self.server.server_port == self.hub.ports[1]

    def do_GET(self):
        url = urlparse(self.path)
        self.hub.record({"cdn": self.is_cdn(), "path": self.path, "range": self.headers.get("Range", ""),
                         "authorization": self.headers.get("Authorization", "")})
        token = self.hub.config.get("token")
        if not self.is_cdn() and token and self.headers.get("Authorization") != "Bearer " + token:
            return self.answer(401, b"", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access is restricted"})
        path = unquote(url.path)
        if path == f"/api/models/{REPOSITORY}/revision/main":
            return self.serve_api("@revision", lambda: ({"id": REPOSITORY, "sha": COMMIT}, {}))
        if path == f"/api/models/{REPOSITORY}/tree/{COMMIT}":
            return self.serve_api("@tree", lambda: self.tree_page(url))
        match = re.fullmatch(f"/{REPOSITORY}/resolve/{COMMIT}/([^/]+)|/cdn/([^/]+)", path)
        if match:
            return self.serve_file(match.group(1) or match.group(2))
        return self.answer(404, b"Entry not found", {"X-Error-Code": "RepoNotFound"})

    def tree_page(self, url):
        entries = self.hub.tree()
        size = self.hub.config.get("page_size", len(entries))
        begin = int(parse_qs(url.query).get("cursor", ["0"])[0])
        headers = {}
        if begin + size < len(entries):
            host = f"http://127.0.0.1:{self.server.server_port}"
            headers["Link"] = f'<{host}{url.path}?recursive=true&cursor={begin + size}>; rel="next"'
        return entries[begin:begin + size], headers

    def serve_api(self, name, make):
        fault = self.hub.fault(name)
        if fault["mode"] == "ok":
            value, headers = make()
            return self.answer(200, json.dumps(value).encode(), headers)
        return self.misbehave(fault, b"")

    def serve_file(self, name):
        data = self.hub.content(name)
        if data is None:
            return self.answer(404, b"Entry not found", {"X-Error-Code": "EntryNotFound"})
        if self.is_cdn():
            return self.send_content(data, {"mode": "ok"})
        return self.misbehave(self.hub.fault(name), data)

    def misbehave(self, fault, data):
        mode = fault["mode"]
        if mode == "status":
            headers = {"Retry-After": str(fault["retry_after"])} if "retry_after" in fault else {}
            if "message" in fault:
                headers["X-Error-Message"] = fault["message"]
            return self.answer(fault["status"], b"sorry", headers)
        if mode == "raw":
            return self.answer(200, fault["body"].encode("utf-8", "surrogateescape"), {})
        if mode == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return None
        if mode == "redirect":
            name = self.path.rsplit("/", 1)[1]
            known = {"cdn": f"http://127.0.0.1:{self.hub.ports[1]}/cdn/{name}", "loop": self.path}
            return self.answer(302, b"x" * 100, {"Location": known.get(fault["to"], fault["to"])})
        if mode == "corrupt":
            data = bytes([data[0] ^ 1]) + data[1:]
        if mode == "longer":
            data += b"x"
        if mode == "shorter":
            data = data[:-1]
        return self.send_content(data, fault)

    def send_content(self, data, fault):
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        headers, status, body = {}, 200, data
        if asked and not fault["mode"].startswith("ignore_range"):
            begin, end = int(asked.group(1)), min(int(asked.group(2)) + 1, len(data))
            if begin >= len(data):
                return self.answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            status, body = 206, data[begin:end]
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(data)}"
            if fault["mode"] == "content_range":
                headers["Content-Range"] = fault["value"]
        return self.answer(status, body, headers, fault)

    def answer(self, status, body, headers, fault=None):
        fault = fault or {"mode": "ok"}
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), "ETag": '"x"', **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if fault["mode"] in ("cut", "ignore_range_cut", "stall"):
                self.wfile.write(body[:fault["bytes"]])
                self.wfile.flush()
                if fault["mode"] == "stall":
                    self.hub.over.wait(fault["seconds"])
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            elif fault["mode"] == "slow":
                for begin in range(0, len(body), 16384):
                    self.wfile.write(body[begin:begin + 16384])
                    if self.hub.over.wait(fault["seconds"]):
                        return
            else:
                self.wfile.write(body)
        except OSError:
            self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        Handler.hub = hub = Hub(json.load(file))
    servers = [Server(("127.0.0.1", 0), Handler) for _ in range(2)]
    hub.ports = [server.server_port for server in servers]
    for server in servers:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    print(*hub.ports, flush=True)
    sys.stdin.read()
    hub.over.set()
    os._exit(0)


if __name__ == "__main__":
    main()
