#!/usr/bin/env python3
"""Load on a server with the demo model; what it finds is printed as one JSON object for each scenario.

  tools/load_test.py [--program build/release/bin/lapidary] [--seconds 60] [SCENARIO ...]

streams      64 streams at once: each answer equal to its answer alone, longest pause, time to first token
silent       1,000 connections that say nothing, while others are served
disconnects  200 clients that go away in the queue, in prefill and in decode: time until nothing runs or holds a block
slow         readers that take nothing beside others that do
short        many short requests, with the resident memory before and after
throughput   tokens/s of 8 streams through HTTP, beside `bench -b 8`
turns        the second turn of a 4,000-token chat, with and without the prefix cache
"""

import argparse
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "server"))
os.environ.setdefault("LAPIDARY_PROGRAM", str(ROOT / "build/release/bin/lapidary"))

PROMPTS = ["The capital of France is", "Once upon a time", "1, 2, 3,", "The opposite of hot is", "17 + 25 =",
           "Repeat exactly: lamp river stone\n", "A baby dog is called a", "The day after Monday is"]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def request_of(i):
    """Prompts of many lengths, greedy and sampled."""
    prompt = "The sky is blue. " * (i % 9) + PROMPTS[i % len(PROMPTS)]
    return {"prompt": prompt, "max_tokens": 16 + i * 7 % 50, "temperature": 0 if i % 2 else 0.9, "seed": i,
            "ignore_eos": True, "return_token_ids": True}


def answer_ids(chunks):
    return [t for chunk in chunks for choice in chunk["choices"] for t in choice.get("token_ids", [])]


def streams(server, count=64, seconds=60.0, kinds=64):
    """Streams for a while; every answer is compared with its answer alone, and errors end the run."""
    from lapidary_server import run_all
    alone = [server.complete(**request_of(i))["choices"][0] for i in range(kinds)]
    pauses, firsts, done = [], [], []
    end = time.monotonic() + seconds

    def client(i):
        turn = 0
        while time.monotonic() < end or turn == 0:
            kind = (i * 31 + turn * 17) % kinds
            begin = last = time.monotonic()
            chunks = []
            with server.open_stream("/v1/completions", request_of(kind)) as stream:
                for chunk in stream:
                    now = time.monotonic()
                    (pauses if chunks else firsts).append(now - last)
                    last = now
                    chunks.append(chunk)
                if stream.error:
                    raise AssertionError(f"stream {i}: {stream.error}")
            text = "".join(c["text"] for chunk in chunks for c in chunk["choices"])
            if answer_ids(chunks) != alone[kind]["token_ids"] or text != alone[kind]["text"]:
                raise AssertionError(f"stream {i}, kind {kind}: {text!r}, alone {alone[kind]['text']!r}")
            done.append((time.monotonic() - begin, len(alone[kind]["token_ids"])))
            turn += 1

    began = time.monotonic()
    run_all(count, client)
    took = time.monotonic() - began
    return {"streams": count, "seconds": round(took, 1), "answers": len(done), "all_equal": True,
            "tokens_per_s": round(sum(tokens for _, tokens in done) / took, 1),
            "first_token_s": {"p50": round(percentile(firsts, 0.5), 3), "p99": round(percentile(firsts, 0.99), 3)},
            "longest_pause_s": round(max(pauses, default=0), 3), "pause_p99_s": round(percentile(pauses, 0.99), 4)}


def silent(server, count=1000):
    """Connections that say nothing, or half a header, hold up nobody."""
    connections = []
    try:
        for i in range(count):
            connections.append(socket.create_connection(("127.0.0.1", server.port)))
            if i % 2:
                connections[-1].sendall(b"GET /health HTTP/1.1\r\nHost:")
        began = time.monotonic()
        answer = server.complete("The capital of France is", max_tokens=5)
        took = time.monotonic() - began
        if "Paris" not in answer["choices"][0]["text"]:
            raise AssertionError(answer)
        metrics = server.metrics()
        return {"connections": int(metrics["lapidary_connections"]), "answer_s": round(took, 3),
                "resident_mb": round(metrics["process_resident_memory_bytes"] / 1e6, 1)}
    finally:
        for connection in connections:
            connection.close()


def disconnects(server, count=200, seed=1, at_once=20):
    """Clients that go away at random moments from answers that do not end; times until the server is idle again."""
    from lapidary_server import ENDLESS_TOKENS, run_all
    chance = random.Random(seed)
    waits = []
    for begin in range(0, count, at_once):
        delays = [chance.choice([0, 0.002, 0.02, 0.1, 0.4]) * chance.random() for _ in range(at_once)]

        def client(i, delays=delays):
            body = {"prompt": [2] + [300 + (i * 7 + k) % 1500 for k in range(3 + i * 97 % 2000)],
                    "max_tokens": ENDLESS_TOKENS, "ignore_eos": True, "stream": i % 3 != 0}
            data = json.dumps(body).encode()
            with socket.create_connection(("127.0.0.1", server.port)) as s:
                s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
                time.sleep(delays[i])
                if i % 2:  # a reset instead of an orderly end
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

        run_all(at_once, client)
        waits.append(server.wait_until_idle())
    return {"disconnects": count, "idle_after_s": {"p50": round(percentile(waits, 0.5), 3), "max": round(max(waits), 3)}}


def slow(server, readers=8):
    """Readers that take nothing hold up nobody, and are cut in time."""
    from lapidary_server import ENDLESS_TOKENS
    stuck = [server.open_stream("/v1/completions",
                                {"prompt": "1, 2, 3,", "max_tokens": ENDLESS_TOKENS, "ignore_eos": True, "logprobs": 20},
                                rcvbuf=2048) for _ in range(readers)]
    try:
        times = []
        for i in range(10):
            began = time.monotonic()
            server.complete(PROMPTS[i % len(PROMPTS)], max_tokens=4)
            times.append(time.monotonic() - began)
        idle = server.wait_until_idle()
        return {"slow_readers": readers, "other_answers_s": {"p50": round(percentile(times, 0.5), 3),
                                                             "max": round(max(times), 3)},
                "cut_after_s": round(idle, 1)}
    finally:
        for stream in stuck:
            stream.close()


def short(server, count=100_000, clients=8, seconds=None):
    """Requests for one token, on connections that stay open."""
    import http.client
    from lapidary_server import PATIENCE_S, run_all
    end = time.monotonic() + seconds if seconds else float("inf")
    done = [0] * clients

    def some(share):
        def client(i):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
            for k in range(share):
                if time.monotonic() > end:
                    break
                connection.request("POST", "/v1/completions", json.dumps(
                    {"prompt": f"{i} {k} is", "max_tokens": 1}))
                response = connection.getresponse()
                data = response.read()
                if response.status != 200:
                    raise AssertionError(data)
                done[i] += 1
            connection.close()
        run_all(clients, client)

    resident = lambda: round(server.metrics()["process_resident_memory_bytes"] / 1e6, 1)
    some(max(1, count // clients // 10))  # buffers and caches reach their size
    before, warm = resident(), sum(done)
    began = time.monotonic()
    some(count // clients)
    took = time.monotonic() - began
    return {"requests": sum(done) - warm, "per_s": round((sum(done) - warm) / took, 1),
            "resident_mb": {"before": before, "after": resident()}}


def read_all(server, bodies):
    """Sends requests on a connection each and takes what comes with as little work as can be; when the first byte came,
    when the last, and the ends of the answers."""
    import selectors
    with selectors.DefaultSelector() as selector:
        for index, body in enumerate(bodies):
            data = json.dumps(body).encode()
            s = socket.create_connection(("127.0.0.1", server.port))
            selector.register(s, selectors.EVENT_READ, index)
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" %
                      len(data) + data)
        ends, first, last = [b""] * len(bodies), None, None
        while selector.get_map():
            for key, _ in selector.select():
                data = key.fileobj.recv(65536)
                last = time.monotonic()
                first = first or last
                ends[key.data] = (ends[key.data] + data)[-2000:]
                if not data:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
    return first, last, ends


def throughput(server, program, model=(), count=8, tokens=256, reps=8):
    """Decode through HTTP beside the engine alone, both with `count` sequences of the same length, in turns.

    Each pair of runs, one right after the other, gives a share; the median of them counts."""
    bodies = [{"prompt": [2] + [300 + i] * 7, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
               "stream_options": {"include_usage": True}} for i in range(count)]
    rates, alone = [], []
    for _ in range(reps):
        first, last, ends = read_all(server, bodies)
        if not all(b'"completion_tokens":%d,' % tokens in end and b"[DONE]" in end for end in ends):
            raise AssertionError(ends)
        rates.append((tokens - 1) * count / (last - first))
        bench = subprocess.run([program, "bench", *model, "-p", "8", "-n", str(tokens), "-b", str(count), "--reps", "1",
                                "--json"], check=True, capture_output=True, text=True).stdout
        alone += [r["tokens_per_s"] for r in json.loads(bench)["results"] if r["test"] == "decode"]
    shares = [rate / other for rate, other in zip(rates, alone, strict=True)]
    return {"streams": count, "pairs": reps,
            "http_tokens_per_s": {"p50": round(percentile(rates, 0.5), 1), "max": round(max(rates), 1)},
            "bench_tokens_per_s": {"p50": round(percentile(alone, 0.5), 1), "max": round(max(alone), 1)},
            "share": {f"p{p}": round(percentile(shares, p / 100), 3) for p in (10, 25, 50, 75, 90)}}


def turns(server, program):
    """The second turn of a long chat computes only what is new, and says the same as without the cache."""
    from lapidary_server import Server
    messages = [{"role": "user", "content": "Repeat exactly: lamp. " + "stone river " * 1900}]
    fields = {"max_tokens": 24, "logprobs": True, "return_token_ids": True, "ignore_eos": True}
    first = server.chat(messages, **fields)
    messages += [{"role": "assistant", "content": first["choices"][0]["message"]["content"]},
                 {"role": "user", "content": "What is the capital of France?"}]
    timed = {}
    began = time.monotonic()
    second = server.chat(messages, **fields)
    timed["with_cache_s"] = round(time.monotonic() - began, 3)
    with Server("--no-prefix-cache") as other:
        began = time.monotonic()
        fresh = other.chat(messages, **fields)
        timed["without_cache_s"] = round(time.monotonic() - began, 3)
    equal = [c["choices"][0][k] for c in (second,) for k in ("token_ids", "logprobs")] == \
            [c["choices"][0][k] for c in (fresh,) for k in ("token_ids", "logprobs")]
    if not equal:
        raise AssertionError("other bits with the cache than without")
    usage = second["usage"]
    return {"prompt_tokens": usage["prompt_tokens"], "equal_bits": equal,
            "cached_tokens": usage["prompt_tokens_details"]["cached_tokens"], **timed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", default=[])
    parser.add_argument("--program", default=os.environ["LAPIDARY_PROGRAM"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--model", help="another folder, for throughput")
    parser.add_argument("--tokens", type=int, default=256, help="of each answer, for throughput")
    parser.add_argument("--pairs", type=int, default=8, help="of runs, for throughput")
    arguments = parser.parse_args()
    os.environ["LAPIDARY_PROGRAM"] = arguments.program
    from lapidary_server import Server, endless
    model = ["-m", arguments.model] if arguments.model else []
    runs = {
        "streams": (["--parallel", "64", "--ctx", "1024"], lambda s: streams(s, seconds=arguments.seconds)),
        "silent": ([], silent),
        "disconnects": ([*endless(), "--parallel", "8"], disconnects),
        "slow": ([*endless(), "--parallel", "4", "--stall-timeout", "5"], slow),
        "short": (["--ctx", "512"], lambda s: short(s, arguments.requests, seconds=arguments.seconds * 2)),
        "throughput": ([*model, "--parallel", "8", "--ctx", "1024"],
                       lambda s: throughput(s, arguments.program, model, tokens=arguments.tokens, reps=arguments.pairs)),
        "turns": ([], lambda s: turns(s, arguments.program)),
    }
    for name in arguments.scenarios or runs:
        flags, run = runs[name]
        with Server("--log-level", "error", *flags) as server:
            print(json.dumps({"scenario": name, **run(server)}), flush=True)


if __name__ == "__main__":
    main()
