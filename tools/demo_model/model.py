"""The demo model's shape and first weights, and an attention for training that costs a window, not a context."""
import torch
import torch.nn.functional as F
from transformers import Gemma4ForCausalLM, Gemma4TextConfig
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

LAYERS = 10
SLIDING_WINDOW = 64
SHAPE = dict(
    vocab_size=2048, hidden_size=192, intermediate_size=256, num_hidden_layers=LAYERS, num_attention_heads=4,
    num_key_value_heads=1, head_dim=32, global_head_dim=64, hidden_activation="gelu_pytorch_tanh",
    max_position_embeddings=4096, rms_norm_eps=1e-6, pad_token_id=0, eos_token_id=[1, 106], bos_token_id=2,
    tie_word_embeddings=True, attention_bias=False, attention_dropout=0.0, sliding_window=SLIDING_WINDOW,
    final_logit_softcapping=30.0, vocab_size_per_layer_input=2048, hidden_size_per_layer_input=16, attention_k_eq_v=False,
    num_kv_shared_layers=4, enable_moe_block=False, use_double_wide_mlp=True,
    layer_types=["full_attention" if i % 5 == 4 else "sliding_attention" for i in range(LAYERS)],
    rope_parameters={
        "full_attention": {"rope_theta": 1000000.0, "rope_type": "proportional", "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
    },
)
# every layer's output is scaled by a constant of the file (not trained): exact in bf16, and not all 1
LAYER_SCALARS = (1.0, 0.9375, 0.875)


def window_attention(module, query, key, value, attention_mask, scaling=1.0, sliding_window=None, **_):
    """Causal attention of [B, H, T, d] on one K/V head; T is a multiple of the window."""
    if sliding_window is None:
        key, value = (t.expand(-1, query.shape[1], -1, -1) for t in (key, value))
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
        return out.transpose(1, 2), None
    b, h, t, d = query.shape
    w = sliding_window
    n = t // w
    q = query.reshape(b, h, n, w, d).transpose(1, 2).reshape(b, n, h * w, d)

    def two_blocks(x):  # [B, 1, T, d] -> [B, n, 2w, d]: the block before and the own one
        x = x.reshape(b, n, w, d)
        return torch.cat((F.pad(x[:, :-1], (0, 0, 0, 0, 1, 0)), x), 2)

    s = (q @ two_blocks(key).transpose(2, 3)).float().reshape(b, n, h, w, 2 * w) * scaling
    far = torch.arange(w, device=q.device)[:, None] + w - torch.arange(2 * w, device=q.device)
    ok = ((far >= 0) & (far < w))[None] & ((torch.arange(2 * w, device=q.device) >= w)
                                           | (torch.arange(n, device=q.device) > 0)[:, None])[:, None]
    p = s.masked_fill(~ok[None, :, None], float("-inf")).softmax(-1).to(q.dtype)
    out = p.reshape(b, n, h * w, 2 * w) @ two_blocks(value)
    return out.reshape(b, n, h, w, d).transpose(2, 3).reshape(b, t, h, d), None


ALL_ATTENTION_FUNCTIONS.register("demo_window", window_attention)


def build(seed, attention="demo_window"):
    torch.manual_seed(seed)
    config = Gemma4TextConfig(**SHAPE)
    config._attn_implementation = attention
    model = Gemma4ForCausalLM(config)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("embed_tokens.weight"):
                p.normal_(0, SHAPE["hidden_size"] ** -0.5)
            elif name.endswith("embed_tokens_per_layer.weight"):
                p.normal_(0, SHAPE["hidden_size_per_layer_input"] ** -0.5)
            elif p.dim() == 2:
                p.normal_(0, p.shape[1] ** -0.5)
            elif name.endswith("k_norm.weight"):
                p.fill_(p.shape[0] ** -0.5)  # attention has no scale of its own
            elif ".post_" in name:
                p.fill_(0.5)
        for i, layer in enumerate(model.model.layers):
            layer.layer_scalar.fill_(LAYER_SCALARS[i % len(LAYER_SCALARS)])
    return model
