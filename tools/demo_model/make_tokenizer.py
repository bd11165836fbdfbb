"""Trains the demo model's tokenizer: the pipeline of Gemma 4's tokenizer.json with a vocabulary of 2,048.

  python make_tokenizer.py OUT_DIR

Ids 0..493 are Gemma 4's: special tokens, <unusedN>, runs of newlines and of spaces, byte tokens. Then come the learned
pieces in the order of their merges, then single characters.
"""
import json
import os
import random
import re
import sys

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

import corpus

VOCAB = 2048
SEED = 20
DOCUMENTS = 12000
SPECIAL = {0: "<pad>", 1: "<eos>", 2: "<bos>", 3: "<unk>", 4: "<mask>", 46: "<|tool>", 47: "<tool|>", 48: "<|tool_call>",
           49: "<tool_call|>", 50: "<|tool_response>", 51: "<tool_response|>", 52: '<|"|>', 98: "<|think|>",
           100: "<|channel>", 101: "<channel|>", 105: "<|turn>", 106: "<turn|>"}
RUN = 31  # the longest run of newlines or spaces that is one token
SPACE = "\u2581"
EXTRA = "\téèêáàâäãíîóôöõúüñçåøæßœ€£°×÷—–…“”‘’·•"
MARKERS = re.compile("|".join(re.escape(s) for s in SPECIAL.values()))


def fixed_vocab():
    """Ids 0..493."""
    vocab = {text: i for i, text in SPECIAL.items()}
    vocab["</s>"] = 212
    for n in range(1, RUN + 1):
        vocab["\n" * n] = 106 + n
    for n in range(2, RUN + 1):
        vocab[SPACE * n] = 136 + n
    for b in range(256):
        vocab[f"<0x{b:02X}>"] = 238 + b
    taken = set(vocab.values())
    # Gemma 4 numbers its fillers by id - 6 where it has them
    vocab.update({f"<unused{i - 6}>" if i >= 6 else "[multimodal]": i for i in range(238) if i not in taken})
    assert sorted(vocab.values()) == list(range(494))
    return vocab


def run_merges():
    """Runs: longest first, so that a run becomes one token wherever one exists."""
    return [[c * x, c * y] for x in range(RUN - 1, 0, -1) for y in range(RUN - x, 0, -1) for c in ("\n", SPACE)]


def learned_merges(count):
    """`count` merges that never cross a word, a digit or a line."""
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.Replace(" ", SPACE)
    words = SPACE + r"?\p{L}+|[0-9]|\n+|" + SPACE + r"?[^\p{L}0-9" + SPACE + r"\n]|" + SPACE + "+"
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(words), "isolated")
    rnd = random.Random(SEED)
    texts = []
    for _ in range(DOCUMENTS):
        texts += [t for t in MARKERS.split(corpus.document(rnd)) if t and t.isascii()]
    alphabet = [chr(c) for c in range(33, 127)] + [SPACE]
    trainer = trainers.BpeTrainer(vocab_size=count + len(alphabet) + 1, initial_alphabet=alphabet, min_frequency=2,
                                  show_progress=False, max_token_length=16)
    tok.train_from_iterator(texts, trainer)
    merges = json.loads(tok.to_str())["model"]["merges"]
    merges = [list(m) for m in merges if set("".join(m)) not in ({"\n"}, {SPACE})]
    return merges[:count], alphabet


def main(out_dir):
    vocab = fixed_vocab()
    room = VOCAB - len(vocab) - len(EXTRA) - 95
    merges, alphabet = learned_merges(room)
    for x, y in merges:
        vocab.setdefault(x + y, len(vocab))
    for ch in alphabet + list(EXTRA):
        vocab.setdefault(ch, len(vocab))
    while len(vocab) < VOCAB:
        vocab[f"<unused{len(vocab)}>"] = len(vocab)
    assert len(vocab) == VOCAB and sorted(vocab.values()) == list(range(VOCAB)), len(vocab)
    bos = [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = bos + [{"SpecialToken": {"id": "<bos>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    doc = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": s, **flags} for i, s in SPECIAL.items()],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
        "post_processor": {"type": "TemplateProcessing", "single": bos, "pair": pair,
                           "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}},
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": dict(sorted(vocab.items(), key=lambda kv: kv[1])), "merges": run_merges() + merges},
    }
    os.makedirs(out_dir, exist_ok=True)
    path = os.path.join(out_dir, "tokenizer.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(doc, f, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(out_dir, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
                   "unk_token": "<unk>", "mask_token": "<mask>", "add_bos_token": True, "add_eos_token": False,
                   "padding_side": "left"}, f, indent=1)
    check(Tokenizer.from_file(path), len(merges), os.path.getsize(path))


def check(tok, merges, size):
    assert tok.encode("a").ids[0] == 2
    for text in ("\n", "\n\n", " " * 31, "x  y\n\n\nz", "The capital of France is Paris.", "😊 好", "<|turn>user\nHi<turn|>\n"):
        ids = tok.encode(text, add_special_tokens=False).ids
        assert tok.decode(ids, skip_special_tokens=False) == text, (text, ids)
    print("merges", merges, "bytes", size, tok.encode("The capital of France is Paris. 123 + 4", add_special_tokens=False).tokens)


if __name__ == "__main__":
    main(sys.argv[1])
