#!/usr/bin/env python3
"""Remakes the golden checkpoints of tests/data with Hugging Face transformers (5.17 or later).

    tools/make_golden.py [--check] FOLDER...

Each folder holds a config.json, which decides everything: the weights follow the rule told in src/synth/synth.h, the
results are transformers' in float32 with eager attention. A config with `text_config` gets the multimodal form, with a few
tensors that a text model has to ignore; a folder with model.safetensors.index.json gets the shards that it lists.
Written beside config.json: the checkpoint, golden.safetensors (logits, hidden states) and golden.json (greedy ids and how
far each was ahead of the next). With --check nothing is written: the folder is compared with what would be.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

MASK = 2**64 - 1
SEED_PREFIX = "model.language_model."
GREEDY_TOKENS = 200
# Results of two machines differ by rounding: logits by this much, greedy ids where the first two are this close.
TOLERANCE = 2e-3


# --- Weights -----------------------------------------------------------------------------------------------------


def seed_of(name):
    value = 0xCBF29CE484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001B3 & MASK
    return value


def mean_and_amplitude(name, shape, config):
    leaf = name.removesuffix(".weight").split(".")[-1]
    fixed = {"layer_scalar": (0.9, 0.1), "k_norm": (0.125, 0.03), "norm": (6.0, 1.0)}
    if leaf in fixed:
        return fixed[leaf]
    if leaf.endswith("norm") or "layernorm" in leaf or leaf in ("scale", "per_expert_scale"):
        return 1.0, 0.25
    fan_in = {"embed_tokens": config["hidden_size"], "embed_tokens_per_layer": config.get("hidden_size_per_layer_input")}
    return 0.0, math.sqrt(3.0) / math.sqrt(fan_in.get(leaf, shape[-1]))


def make_weight(rest, shape, config):
    """The tensor SEED_PREFIX + rest as bfloat16."""
    z = np.arange(1, math.prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(seed_of(SEED_PREFIX + rest))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    z ^= z >> np.uint64(31)
    unit = (z >> np.uint64(40)).astype(np.float32) * np.float32(2**-23) - np.float32(1)
    mean, amplitude = mean_and_amplitude(rest, shape, config)
    values = np.float32(mean) + np.float32(amplitude) * unit
    return torch.from_numpy(values).to(torch.bfloat16).reshape(tuple(shape))


def weight_shapes(model, config):
    """{name without prefix: shape} of a checkpoint: what the model has, and K/V weights for the layers that share them."""
    shapes = {
        name.removeprefix("model."): tuple(value.shape)
        for name, value in model.state_dict().items()
        if not name.startswith("lm_head")
    }
    types = config["layer_types"]
    first_shared = len(types) - (config.get("num_kv_shared_layers") or 0)
    for layer in range(first_shared, len(types)):
        source = max(i for i in range(first_shared) if types[i] == types[layer])
        for leaf in ("k_proj.weight", "v_proj.weight", "k_norm.weight"):
            shape = shapes.get(f"layers.{source}.self_attn.{leaf}")
            if shape:
                shapes[f"layers.{layer}.self_attn.{leaf}"] = shape
    return shapes


# --- Results -----------------------------------------------------------------------------------------------------


def build_model(config):
    settings = Gemma4TextConfig(**{key: value for key, value in config.items() if key != "model_type"})
    settings._attn_implementation = "eager"
    model = Gemma4ForCausalLM(settings).float().eval()
    weights = {rest: make_weight(rest, shape, config) for rest, shape in weight_shapes(model, config).items()}
    state = model.state_dict()
    with torch.no_grad():
        for name, value in state.items():
            if not name.startswith("lm_head"):
                value.copy_(weights[name.removeprefix("model.")])
    if model.lm_head.weight.data_ptr() != model.model.embed_tokens.weight.data_ptr():
        sys.exit("the output head is not the embedding table")
    return model, weights


def make_prompts(vocab):
    def ids(state, count):
        out = [2]
        for _ in range(count):
            state = (state * 6364136223846793005 + 1442695040888963407) & MASK
            out.append(10 + (state >> 33) % (vocab - 10))
        return out

    return {"one": [2], "short": ids(1, 7), "window": ids(2, 40), "long": ids(3, 299)}


def greedy(model, prompt):
    ids, margins, cache, step = [], [], None, torch.tensor([prompt])
    for _ in range(GREEDY_TOKENS):
        result = model(input_ids=step, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = result.past_key_values
        (first, second), (best, _) = (part.tolist() for part in result.logits[0, -1].topk(2))
        ids.append(best)
        margins.append(round(first - second, 6))
        step = torch.tensor([[best]])
    return {"ids": prompt, "greedy": ids, "margin": margins}


@torch.no_grad()
def results_of(model, config):
    tensors, texts = {}, {}
    for name, prompt in make_prompts(config["vocab_size"]).items():
        ids = torch.tensor([prompt])
        result = model(input_ids=ids, output_hidden_states=name == "short", use_cache=False)
        tensors[f"{name}.logits"] = result.logits[0].contiguous()
        for layer, hidden in enumerate(result.hidden_states or ()):
            tensors[f"{name}.hidden.{layer}"] = hidden[0].contiguous()
        if name == "short" and config.get("hidden_size_per_layer_input"):
            inner = model.model
            inputs = inner.project_per_layer_inputs(inner.embed_tokens(ids), inner.get_per_layer_inputs(ids, None))
            tensors[f"{name}.per_layer_inputs"] = inputs[0].contiguous()
        texts[name] = greedy(model, prompt)
    return tensors, {"dtype": "float32", "prompts": texts}


# --- Files -------------------------------------------------------------------------------------------------------


def checkpoint_files(folder, weights, nested):
    """{file name: tensors}"""
    tensors = {(SEED_PREFIX if nested else "model.") + rest: weight for rest, weight in weights.items()}
    if nested:
        for name, shape in (
            ("vision_tower.patch_embedder.input_proj.weight", (4, 4)),
            ("audio_tower.output_proj.bias", (4,)),
            ("embed_vision.embedding_projection.weight", (4, 4)),
        ):
            tensors["model." + name] = torch.zeros(shape, dtype=torch.bfloat16)
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return {"model.safetensors": tensors}
    files = {}
    for name, shard in json.loads(index.read_text())["weight_map"].items():
        files.setdefault(shard, {})[name] = tensors.pop(name)
    if tensors:
        sys.exit(f"{index}: does not list {sorted(tensors)}")
    return files


def compare(folder, files, golden, meta):
    """Lines that tell where the folder differs."""
    for file, tensors in files.items():
        stored = load_file(folder / file)
        if stored.keys() != tensors.keys():
            yield f"{file}: other tensors: {sorted(stored.keys() ^ tensors.keys())}"
        for name in stored.keys() & tensors.keys():
            if not torch.equal(stored[name], tensors[name]):
                yield f"{file}: {name}: other bits"
    stored = load_file(folder / "golden.safetensors")
    if stored.keys() != golden.keys():
        yield f"golden.safetensors: other tensors: {sorted(stored.keys() ^ golden.keys())}"
    for name in stored.keys() & golden.keys():
        distance = (stored[name] - golden[name]).abs().max().item()
        if distance > TOLERANCE:
            yield f"golden.safetensors: {name}: differs by {distance}"
    stored = json.loads((folder / "golden.json").read_text())["prompts"]
    for name, made in meta["prompts"].items():
        pairs = zip(stored[name]["greedy"], made["greedy"], stored[name]["margin"])
        position = next((i for i, (a, b, margin) in enumerate(pairs) if a != b or margin < TOLERANCE), GREEDY_TOKENS)
        if stored[name]["ids"] != made["ids"]:
            yield f"golden.json: {name}: other prompt"
        if position < GREEDY_TOKENS and stored[name]["margin"][position] >= TOLERANCE:
            yield f"golden.json: {name}: greedy ids differ at {position}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("folders", nargs="+", type=Path)
    arguments = parser.parse_args()
    torch.set_float32_matmul_precision("highest")
    different = False
    for folder in arguments.folders:
        config = json.loads((folder / "config.json").read_text())
        nested = "text_config" in config
        text_config = config["text_config"] if nested else config
        text_config = {key: value for key, value in text_config.items() if key not in ("architectures", "dtype")}
        model, weights = build_model(text_config)
        golden, meta = results_of(model, text_config)
        files = checkpoint_files(folder, weights, nested)
        if arguments.check:
            problems = list(compare(folder, files, golden, meta))
            different = different or bool(problems)
            print(f"{folder}: {'same' if not problems else ''}", *problems, sep="\n  " if problems else "")
            continue
        for file, tensors in files.items():
            save_file(tensors, folder / file, {"format": "pt"})
        save_file(golden, folder / "golden.safetensors")
        (folder / "golden.json").write_text(json.dumps(meta))
        print(f"{folder}: written")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
