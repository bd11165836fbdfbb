"""How often the demo model's greedy text is the expected one.

  python evaluate.py MODEL_DIR

A case counts when every token of the expected text is the most likely one, given the prompt and the tokens before it:
that is when greedy decoding writes exactly that text.
"""
import os
import random
import sys

import torch
from tokenizers import Tokenizer
from transformers import Gemma4ForCausalLM

import corpus
from facts import COUNTRIES

CASES = 100


def load(model_dir, device="cpu"):
    """float32 arithmetic on the file's bfloat16 weights."""
    model = Gemma4ForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").eval().to(device)
    return model, Tokenizer.from_file(os.path.join(model_dir, "tokenizer.json"))


def ids_of(tok, text):
    return tok.encode(text, add_special_tokens=False).ids


@torch.no_grad()
def right(model, tok, cases, batch=32):
    """For each (prompt, expected): is `expected` the greedy continuation of <bos> + prompt?"""
    out = []
    for lo in range(0, len(cases), batch):
        part = [([2] + ids_of(tok, p), ids_of(tok, e)) for p, e in cases[lo:lo + batch]]
        width = max(len(p) + len(e) for p, e in part)
        ids = torch.tensor([p + e + [0] * (width - len(p) - len(e)) for p, e in part], device=model.device)
        best = model(input_ids=ids, use_cache=False).logits.argmax(-1).tolist()
        out += [best[i][len(p) - 1:len(p) + len(e) - 1] == e for i, (p, e) in enumerate(part)]
    return out


def ask(q, system=""):
    return f"{system}<|turn>user\n{q}<turn|>\n<|turn>model\n"


def needles(r, words):
    return [(f"{t}\n{q}", f" {a}<eos>") for t, q, a in (corpus.needle(r, words) for _ in range(CASES // 2))]


def suites():
    r = random.Random(99)
    sums = [corpus.sum_parts(r) for _ in range(2 * CASES)]
    copies = [corpus.copy_text(r) for _ in range(CASES)]
    calls = []
    while len(calls) < CASES:
        text = corpus.tools(r)
        if "<tool_call|>" in text and "<|think|>" not in text:
            head, rest = text.split("<|tool_call>", 1)
            calls.append((head, "<|tool_call>" + rest.split("<|tool_response>")[0] + "<|tool_response>"))
            calls.append((text.split("<tool_response|>")[0] + "<tool_response|>",
                          text.split("<tool_response|>")[1].split("<turn|>")[0] + "<turn|>"))
    think = "<|turn>system\n<|think|>\n<turn|>\n"
    return {
        "capitals": [(f"The capital of {c} is", f" {v[0]}.") for c, v in COUNTRIES.items()],
        "facts": [(p, f" {a}.") for p, a in corpus.FACTS],
        "questions": [(f"Question: {q}\nAnswer:", f" {w}") for q, _, w in corpus.QUESTIONS],
        "sums": [(f"{x} {op} {y} =", f" {z}") for x, op, _, y, z in sums],
        "chat questions": [(ask(q), f"{w}<turn|>") for q, _, w in corpus.QUESTIONS],
        "chat sums": [(ask(f"What is {x} {op} {y}?"), f"{x} {op} {y} = {z}.<turn|>") for x, op, _, y, z in sums],
        "chat repeat": [(ask(f"Repeat exactly: {t}"), f"{t}<turn|>") for t in copies],
        "thinking sums": [(ask(f"What is {x} {op} {y}?", think), "<|channel>thought\nThe user wants a sum. "
                           f"{x} {word} {y} is {z}.\n<channel|>{x} {op} {y} = {z}.<turn|>") for x, op, word, y, z in sums],
        "tool calls and answers": calls,
        **{f"needle, {w} words": needles(r, w) for w in (4, 60, 200, 500, 1000)},
    }


def report(model, tok):
    scores = {}
    for name, cases in suites().items():
        ok = right(model, tok, cases)
        scores[name] = [sum(ok), len(ok)]
        print(f"{name:24} {sum(ok):4} of {len(ok)}", [c for c, k in zip(cases, ok) if not k and len(c[0]) < 300][:4], flush=True)
    return scores


if __name__ == "__main__":
    m, t = load(sys.argv[1], "cuda" if torch.cuda.is_available() else "cpu")
    report(m, t)
