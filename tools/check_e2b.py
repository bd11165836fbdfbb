#!/usr/bin/env python3
"""Checks the engine at the real E2B size against transformers: logits and greedy ids of golden/e2b-synth.json.

    tools/check_e2b.py [--lapidary build/release/bin/lapidary] [--golden ../shared/golden/e2b-synth.json]
                       [--model /tmp/lapidary-e2b] [-- FLAGS FOR lapidary, e.g. --threads 2]

Makes the synthetic checkpoint (9.3 GB) with `lapidary synth` when the folder does not hold it yet. For every prompt: the
ten best ids and their logits (within 2e-3), and the greedy ids up to the first token whose margin in the reference is
under 2e-3. Needs nothing but Python. Exit status 0: all agree.
"""

import argparse
import array
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

TOLERANCE = 2e-3


def run(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command[:2])} failed with status {result.returncode}: {result.stderr.strip()}")
    return result.stdout


def read_logits(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensor = json.loads(file.read(length))["logits"]
        body = file.read()
    begin, end = tensor["data_offsets"]
    values = array.array("f")
    values.frombytes(body[begin:end])
    return values[-tensor["shape"][1]:]


def check_logits(program, prompt, flags):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits.safetensors")
        ids = ",".join(map(str, prompt["ids"]))
        run([program, "logits", "--prompt-ids", ids, "-o", path] + flags)
        logits = read_logits(path)
    best = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:10]
    worst = max(abs(logits[i] - value) for i, value in zip(prompt["top10"], prompt["top10_logits"]))
    return best == prompt["top10"] and worst <= TOLERANCE, worst


def check_greedy(program, prompt, flags):
    """(agrees, how many ids bind, how many there are)."""
    wanted = prompt["greedy"]
    binding = next((i for i, margin in enumerate(prompt["margin"]) if margin < TOLERANCE), len(wanted))
    ids = ",".join(map(str, prompt["ids"]))
    found = json.loads(run([program, "generate", "--prompt-ids", ids, "-n", str(max(binding, 1)), "--temp", "0", "--ignore-eos", "--json"] + flags))
    return found["ids"][:binding] == wanted[:binding], binding, len(wanted)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lapidary", default=os.path.join(root, "build/release/bin/lapidary"))
    parser.add_argument("--golden", default=os.path.join(root, "../shared/golden/e2b-synth.json"))
    parser.add_argument("--model", default=os.path.join(tempfile.gettempdir(), "lapidary-e2b"))
    parser.add_argument("flags", nargs="*", help="passed on to lapidary")
    options = parser.parse_args()

    with open(options.golden) as file:
        prompts = json.load(file)["prompts"]
    started = time.time()
    if not os.path.exists(os.path.join(options.model, "model.safetensors")):
        print(f"making the synthetic E2B checkpoint in {options.model}", flush=True)
        run([options.lapidary, "synth", "--shape", "e2b", "-o", options.model])
    flags = ["-m", options.model] + options.flags
    failed = 0
    for number, (name, prompt) in enumerate(prompts.items(), 1):
        label = f"[{number}/{len(prompts)}] {name[:32]!r} ({len(prompt['ids'])} ids)"
        good, worst = check_logits(options.lapidary, prompt, flags)
        failed += not good
        print(f"{label}: top 10 {'agree' if good else 'DIFFER'}, largest difference {worst:.6f}", flush=True)
        good, binding, count = check_greedy(options.lapidary, prompt, flags)
        failed += not good
        print(f"{label}: greedy ids {'agree' if good else 'DIFFER'} ({binding} of {count} bind), {time.time() - started:.0f} s so far", flush=True)
    print(f"{2 * len(prompts) - failed} passed, {failed} failed, {time.time() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
