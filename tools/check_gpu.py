#!/usr/bin/env python3
"""Checks and times the GPU backend in one go, on a machine where nothing is installed but a driver and Python.

    tools/check_gpu.py [--bin DIR] [--model DIR] [--golden e2b-synth.json] [--minutes 9]

--bin holds lapidary, kernels_gpu_test and backend_gpu_test as the preset `cuda` builds them (with the shared libraries
they need beside them or in --lib). Makes the synthetic E2B checkpoint in --model when it is not there. Runs the GPU's
tests, tools/check_e2b.py when --golden is given, prompt lookup against plain greedy, and `lapidary bench` for prompts and
batches; prints one table. Exit status 0: everything agreed.
"""

import argparse
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# (name, flags of lapidary bench)
BENCHES = [
    ("few rows, f32 cache", ["-p", "0", "-n", "256", "-b", "1,2,4,8", "--reps", "5"]),
    ("depth 8192, bf16 cache", ["-p", "0", "-n", "64", "-b", "1", "--depth", "8192", "--reps", "3", "--kv-type", "bf16"]),
    ("depth 100000, bf16 cache",
     ["-p", "0", "-n", "32", "-b", "1", "--depth", "100000", "--reps", "3", "--kv-type", "bf16", "--activations", "bf16"]),
    ("f32 activations and cache", ["-p", "512,2048,8192", "-n", "32", "-b", "32,128", "--reps", "3"]),
    ("bf16 activations and cache",
     ["-p", "512,2048,8192", "-n", "32", "-b", "32,128", "--reps", "3", "--kv-type", "bf16", "--activations", "bf16"]),
    ("table on the host", ["-p", "0", "-n", "128", "-b", "1", "--reps", "3", "--per-layer-table", "host"]),
]


class Check:
    def __init__(self, options):
        self.options = options
        self.started = time.time()
        self.failed = []
        self.env = dict(os.environ)
        if options.lib:
            self.env["LD_LIBRARY_PATH"] = options.lib

    def left(self):
        return self.options.minutes * 60 - (time.time() - self.started)

    def run(self, name, command, limit):
        """Standard output, or None when it failed, which is told."""
        limit = min(limit, self.left())
        try:
            result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env,
                                    timeout=max(1, limit))
        except subprocess.TimeoutExpired:
            self.failed.append(name)
            print(f"{name}: FAILED, not done after {limit:.0f} s", flush=True)
            return None
        if result.returncode != 0:
            self.failed.append(name)
            tail = (result.stdout + result.stderr).strip().splitlines()[-12:]
            print(f"{name}: FAILED with status {result.returncode}\n  " + "\n  ".join(tail), flush=True)
            return None
        return result.stdout

    def program(self, *arguments):
        return [os.path.join(self.options.bin, "lapidary"), *arguments]

    def tests(self):
        for name in ("kernels_gpu_test", "backend_gpu_test"):
            out = self.run(name, [os.path.join(self.options.bin, name)], 120)
            if out is None:
                continue
            skipped = out.count("[  SKIPPED ]")
            summary = [line for line in out.splitlines() if "PASSED" in line][-1].split("]")[-1].strip()
            print(f"{name}: passed {summary}" + (f", {skipped} skipped" if skipped else ""), flush=True)

    def golden(self):
        out = self.run("check_e2b", [sys.executable, os.path.join(ROOT, "tools/check_e2b.py"), "--lapidary",
                                     self.program()[0], "--golden", self.options.golden, "--model", self.options.model,
                                     "--", "--device", "cuda"], 240)
        if out is not None:
            print("check_e2b: " + out.strip().splitlines()[-1], flush=True)

    def lookup(self):
        """Speculation on a text that repeats itself: the same ids, and how much faster."""
        ids = ",".join(str(1000 + i % 40) for i in range(400))
        answers = []
        for kind in ("none", "ngram"):
            out = self.run("prompt lookup", self.program("generate", "-m", self.options.model, "--device", "cuda",
                                                         "--prompt-ids", ids, "-n", "256", "--temp", "0", "--ignore-eos",
                                                         "--speculate", kind, "--json"), 60)
            if out is None:
                return
            answers.append(json.loads(out))
        plain, ngram = answers
        if plain["ids"] != ngram["ids"]:
            self.failed.append("prompt lookup")
        rates = [a["timings"]["decode_tokens_per_s"] for a in answers]
        print(f"prompt lookup: ids {'equal' if plain['ids'] == ngram['ids'] else 'DIFFER'}, {rates[0]:.0f} -> "
              f"{rates[1]:.0f} tokens/s, {ngram['speculation']}", flush=True)

    def benches(self):
        print(f"{'what':<28} {'test':<8} {'tokens':>6} {'batch':>5} {'depth':>6} {'tokens/s':>9} {'ms/step':>8} {'GB/s':>6} {'share':>6}")
        for name, flags in BENCHES:
            out = self.run(name, self.program("bench", "-m", self.options.model, "--device", "cuda", "--json", *flags), 90)
            if out is None:
                continue
            report = json.loads(out)
            for r in report["results"]:
                share = r["bandwidth_share"]
                print(f"{name:<28} {r['test']:<8} {r['tokens']:>6} {r['batch']:>5} {r['depth']:>6} {r['tokens_per_s']:>9.0f} "
                      f"{r['ms_per_step']:>8.3f} {r['weight_gb_s']:>6.0f} {'' if share is None else f'{share:6.3f}'}", flush=True)
            print(f"{name:<28} {report['device']}, reads {report['read_bandwidth_gb_s']:.0f} GB/s, loaded in {report['load_s']:.2f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/cuda/bin"))
    parser.add_argument("--lib", help="folder of shared libraries")
    parser.add_argument("--model", default="/dev/shm/lapidary-e2b")
    parser.add_argument("--golden", help="e2b-synth.json; without it the E2B size is timed but not checked")
    parser.add_argument("--minutes", type=float, default=9, help="time for everything")
    check = Check(parser.parse_args())
    check.tests()
    if not os.path.exists(os.path.join(check.options.model, "model.safetensors")):
        check.run("synth", check.program("synth", "--shape", "e2b", "-o", check.options.model), 120)
    if check.options.golden:
        check.golden()
    check.lookup()
    check.benches()
    print(f"{len(check.failed)} failed{': ' + ', '.join(check.failed) if check.failed else ''}, {time.time() - check.started:.0f} s")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
