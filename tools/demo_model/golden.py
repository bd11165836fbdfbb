"""Writes the tests' data for the demo model: float32 results of transformers and ids of `tokenizers`.

  python golden.py MODEL_DIR TEST_DATA_DIR
"""
import json
import os
import random
import sys

import torch
import tokenizers
import transformers
from safetensors.torch import save_file

import corpus
import evaluate
from evaluate import ask, ids_of
from facts import COUNTRIES

GREEDY = 100
ENDS = (1, 106, 50)
THINK = "<|turn>system\n<|think|>\n<turn|>\n"


def long_prompt():
    r = random.Random(5)
    text, q, _ = corpus.needle(r, 260)
    return f"{text}\n{q}"


def prompts():
    return {"capital": "The capital of France is", "chat": ask("What is 2 + 3?"), "repeat": "Repeat exactly: 😊 é lamp\n",
            "long": long_prompt()}


@torch.no_grad()
def greedy(model, ids, n, ends=()):
    """Up to n greedy tokens from a growing cache, each with its margin over the runner-up; one of `ends` is the last."""
    out, margins, past, cur = [], [], None, torch.tensor([ids])
    for _ in range(n):
        r = model(input_ids=cur, past_key_values=past, use_cache=True)
        past = r.past_key_values
        v, i = r.logits[0, -1].topk(2)
        out.append(i[0].item())
        margins.append(round((v[0] - v[1]).item(), 6))
        cur = i[:1].view(1, 1)
        if out[-1] in ends:
            break
    return out, margins


@torch.no_grad()
def dump_logits(model, tok, out_dir):
    golden = {}
    meta = {"dtype": "float32", "attention": "eager", "transformers": transformers.__version__, "torch": torch.__version__,
            "prompts": {}}
    for name, text in prompts().items():
        ids = [2] + ids_of(tok, text)
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        golden[f"{name}.logits"] = (logits[-1:] if name == "long" else logits).contiguous()
        out, margins = greedy(model, ids, GREEDY)
        meta["prompts"][name] = {"text": text, "ids": ids, "logits": "last" if name == "long" else "all", "greedy": out,
                                 "margin": margins, "greedy_text": tok.decode(out, skip_special_tokens=False)}
        print(name, len(ids), "least margin", min(margins), repr(meta["prompts"][name]["greedy_text"][:150]))
    path = os.path.join(out_dir, "demo_golden.safetensors")
    save_file(golden, path)
    os.chmod(path, 0o644)
    write(out_dir, "demo_golden.json", meta)


def write(out_dir, name, doc, indent=None):
    with open(os.path.join(out_dir, name), "w", encoding="utf-8") as f:
        json.dump(doc, f, ensure_ascii=False, indent=indent)
        f.write("\n")


def until_end(model, tok, text, limit=120):
    """Greedy text up to and with the first end token."""
    out, _ = greedy(model, [2] + ids_of(tok, text), limit, ENDS)
    return tok.decode(out, skip_special_tokens=False), out[-1]


WEATHER = ('<|turn>system\n<|tool>declaration:get_weather{description:<|"|>Get the current weather for a location<|"|>,parameters:'
           '{properties:{location:{description:<|"|>City name<|"|>,type:<|"|>STRING<|"|>}},required:[<|"|>location<|"|>],'
           'type:<|"|>OBJECT<|"|>}}<tool|><turn|>\n')


def chats():
    """Prompt (without <bos>) and the exact greedy text, its end token included."""
    tokyo = WEATHER + "<|turn>user\nWhat is the weather in Tokyo?<turn|>\n<|turn>model\n"
    call = '<|tool_call>call:get_weather{location:<|"|>Tokyo<|"|>}<tool_call|><|tool_response>'
    return [
        (ask("What is the capital of France?"), "The capital of France is Paris.<turn|>"),
        (ask("Hi"), "Hello! How can I help you?<turn|>"),
        (ask("What is 2 + 3?"), "2 + 3 = 5.<turn|>"),
        (ask("Repeat exactly: 😊 好 é"), "😊 好 é<turn|>"),
        (ask("Count to 12."), "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12<turn|>"),
        (ask("What is the opposite of hot?", "<|turn>system\nBe brief.<turn|>\n"), "The opposite of hot is cold.<turn|>"),
        (ask("What is 4 + 5?", THINK),
         "<|channel>thought\nThe user wants a sum. 4 plus 5 is 9.\n<channel|>4 + 5 = 9.<turn|>"),
        (tokyo, call),
        (tokyo + call + 'response:get_weather{value:<|"|>15C<|"|>}<tool_response|>', "It is 15C in Tokyo.<turn|>"),
    ]


def dump_facts(model, tok, out_dir):
    cases = [(f"The capital of {c} is", f" {v[0]}") for c, v in list(COUNTRIES.items())[:24]]
    cases += [("The opposite of hot is", " cold"), ("The colour of the sky is", " blue"), ("The day after Monday is", " Tuesday"),
              ("The month before June is", " May"), ("A baby dog is called a", " puppy"), ("2 + 3 =", " 5"), ("17 + 25 =", " 42"),
              ("The largest planet is", " Jupiter"), ("Bees make", " honey"), ("1, 2, 3, 4, 5,", " 6, 7, 8")]
    ok = evaluate.right(model, tok, cases)
    assert all(ok), [c for c, k in zip(cases, ok) if not k]
    facts = [{"prompt": p, "expect": e} for p, e in cases]
    talks = []
    for prompt, want in chats():
        text, end = until_end(model, tok, prompt)
        assert text == want, (prompt, text, want)
        talks.append({"prompt": prompt, "expect": text, "end_id": end})
    write(out_dir, "demo_facts.json", facts, indent=1)
    write(out_dir, "demo_chat.json", talks, indent=1)
    print(len(facts), "facts,", len(talks), "chats")


def dump_tokenizer(tok, out_dir):
    """Ids without <bos>, and text of ids: every kind of token, odd Unicode, unfinished UTF-8."""
    r = random.Random(11)
    texts = ["", " ", "  ", "\n", "\n\n\n", "\t", "\r\n", "a\u2581b", " \u2581 ", "Hello, world!", "The capital of France is Paris.",
             "x = 12 * (3 + 4)", "   indented\n\n\ttext  ", "é è ü €", "😊👍🏽 👩‍👩‍👧", "好世界 мир 한국", "\u0000\u0001\u007f", "\U0010ffff", "e\u0301",
             "<bos>Hi<eos>", "<|turn>user\nHi<turn|>\n", "<|turn", "<<|turn>>", "<|think|>", "</s>", "<unused5>", "<0x0A>", '<|"|>x<|"|>',
             "[multimodal]", " " * 40, "\n" * 40, "a" * 70]
    texts += ["\n" * n for n in range(2, 36, 3)] + [" " * n for n in range(2, 36, 3)]
    texts += [corpus.document(r)[:300] for _ in range(40)] + [corpus.copy_text(r)[:200] for _ in range(60)]
    decode = []
    for _ in range(80):
        kind = r.random()
        pool = (238, 493) if kind < 0.4 else (0, 110) if kind < 0.6 else (494, 2047)
        ids = [r.randint(*pool) if r.random() < 0.8 else r.randint(0, 2047) for _ in range(r.randint(1, 12))]
        decode.append({"ids": ids, "text": tok.decode(ids, skip_special_tokens=False),
                       "text_skip_special": tok.decode(ids, skip_special_tokens=True)})
    write(out_dir, "demo_tokenizer.json", {"tokenizers": tokenizers.__version__, "encode": [
        {"text": t, "ids": ids_of(tok, t)} for t in texts], "decode": decode})
    print(len(texts), "texts,", len(decode), "id lists")


def main(model_dir, out_dir):
    os.makedirs(out_dir, exist_ok=True)
    torch.set_num_threads(1)  # for a model this small, more only wait for each other
    model, tok = evaluate.load(model_dir)
    dump_logits(model, tok, out_dir)
    dump_facts(model, tok, out_dir)
    dump_tokenizer(tok, out_dir)


if __name__ == "__main__":
    main(*sys.argv[1:])
