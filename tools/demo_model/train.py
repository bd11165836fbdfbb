"""Trains the demo model with transformers and writes it in the Hugging Face layout.

  python train.py TOKENIZER_JSON OUT_DIR [--seconds 200] [--seed 7]

The learning rate follows the clock, so a faster machine takes more steps in the same time.
"""
import argparse
import json
import math
import os
import random
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer

import corpus
import model as demo

LENGTH = 2048


class Packed(torch.utils.data.IterableDataset):
    """Batches [B, LENGTH + 1] of documents laid end to end; every row begins with a document."""

    def __init__(self, tokenizer, batch, seed, length=LENGTH):
        self.tokenizer, self.batch, self.seed, self.length = tokenizer, batch, seed, length

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        rnd = random.Random(self.seed * 1000 + (info.id if info else 0))
        tok = Tokenizer.from_file(self.tokenizer)
        while True:
            rows = []
            for _ in range(self.batch):
                row = []
                while len(row) <= self.length:
                    row += tok.encode(corpus.document(rnd), add_special_tokens=False).ids
                rows.append(row[: self.length + 1])
            yield torch.tensor(rows)


def loss_of(model, ids):
    masks = {"full_attention": None, "sliding_attention": None}
    h = model.model(input_ids=ids[:, :-1], attention_mask=masks, use_cache=False).last_hidden_state
    cap = model.config.final_logit_softcapping
    logits = cap * torch.tanh(F.linear(h, model.model.embed_tokens.weight).float() / cap)
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def groups(model, decay):
    wide = [p for n, p in model.named_parameters() if p.dim() == 2 and "embed" not in n]
    rest = [p for n, p in model.named_parameters() if p.dim() != 2 or "embed" in n]
    return [{"params": wide, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]


def train(args, device):
    model = demo.build(args.seed).to(device)
    print("parameters", sum(p.numel() for p in model.parameters()), flush=True)
    opt = torch.optim.AdamW(groups(model, 0.05), lr=args.rate, betas=(0.9, 0.97), fused=device == "cuda")
    data = iter(torch.utils.data.DataLoader(Packed(args.tokenizer, args.batch, args.seed, args.length), batch_size=None,
                                            num_workers=args.workers, prefetch_factor=8 if args.workers else None))

    def step(ids):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            return loss_of(model, ids)

    run = torch.compile(step, dynamic=False, backend=args.backend) if args.backend else step
    began = time.time()
    try:
        run(next(data).to(device)).backward()
    except Exception as e:  # a compiler that cannot: the same arithmetic, slower
        print("not compiled:", type(e).__name__, str(e)[:300], flush=True)
        run = step
    model.zero_grad()
    print(f"first step {time.time() - began:.1f} s", flush=True)
    began, n, waited = time.time(), 0, 0.0
    while (done := (time.time() - began) / args.seconds) < 1 and n < args.steps:
        rate = args.rate * min(1, (n + 1) / 200) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        for g in opt.param_groups:
            g["lr"] = rate
        t = time.time()
        ids = next(data).to(device, non_blocking=True)
        waited += time.time() - t
        loss = run(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        n += 1
        if n % args.log == 0:
            print(f"step {n} loss {loss.item():.4f} rate {rate:.5f} {time.time() - began:.1f} s, waited {waited:.1f}", flush=True)
    return model, {"steps": n, "tokens": n * args.batch * args.length, "seconds": round(time.time() - began, 1),
                   "loss": round(loss.item(), 4)}


def save(model, out_dir):
    os.makedirs(out_dir, exist_ok=True)
    tensors = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    path = os.path.join(out_dir, "model.safetensors")
    save_file(tensors, path, {"format": "pt"})
    os.chmod(path, 0o644)
    config = {"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "dtype": "bfloat16", **demo.SHAPE}
    with open(os.path.join(out_dir, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    with open(os.path.join(out_dir, "generation_config.json"), "w") as f:
        json.dump({"bos_token_id": 2, "eos_token_id": [1, 106, 50], "pad_token_id": 0, "do_sample": False}, f, indent=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("tokenizer")
    ap.add_argument("out")
    ap.add_argument("--seconds", type=float, default=200)
    ap.add_argument("--steps", type=int, default=10**9)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--length", type=int, default=LENGTH)
    ap.add_argument("--rate", type=float, default=2.5e-3)
    ap.add_argument("--workers", type=int, default=12)
    ap.add_argument("--log", type=int, default=200)
    ap.add_argument("--backend", default="inductor", help="torch.compile backend; empty: do not compile")
    args = ap.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    model, log = train(args, device)
    save(model, args.out)
    import transformers
    log |= {"torch": torch.__version__, "transformers": transformers.__version__, "seed": args.seed, "batch": args.batch,
            "length": args.length, "device": torch.cuda.get_device_name() if device == "cuda" else "cpu"}
    print(json.dumps(log), flush=True)
    with open(os.path.join(args.out, "train.json"), "w") as f:
        json.dump(log, f, indent=1)


if __name__ == "__main__":
    main()
