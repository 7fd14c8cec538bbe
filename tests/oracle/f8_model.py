#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tiny llama whose matrices are FP8 (E4M3) with a scale a block of 128 x 128, as DeepSeek's and
Qwen's FP8 checkpoints store them, and what some of its weights are worth.

Made with torch 2.15.0, safetensors: python tests/oracle/f8_model.py tests/golden/convert/f8
expected.json: {"tensor name": [[row, col, float32 value], ...]}
"""
import json
import os
import random
import sys

import torch
from safetensors.torch import save_file

torch.manual_seed(3)
random.seed(3)
H, F, V, HD = 144, 136, 8, 16
out = sys.argv[1]
os.makedirs(out, exist_ok=True)
with open(out + "/config.json", "w") as f:
    json.dump({"model_type": "llama", "hidden_size": H, "intermediate_size": F, "vocab_size": V, "num_hidden_layers": 1,
               "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": HD, "max_position_embeddings": 64,
               "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "rope_theta": 10000.0,
               "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                       "weight_block_size": [128, 128]}}, f)
p = "model.layers.0."
t = {"model.embed_tokens.weight": torch.randn(V, H).to(torch.bfloat16), "model.norm.weight": torch.ones(H, dtype=torch.bfloat16),
     p + "input_layernorm.weight": torch.ones(H, dtype=torch.bfloat16),
     p + "post_attention_layernorm.weight": torch.ones(H, dtype=torch.bfloat16)}
expected = {}
for name, r, c in (("self_attn.q_proj", 2 * HD, H), ("self_attn.k_proj", HD, H), ("self_attn.v_proj", HD, H),
                   ("self_attn.o_proj", H, 2 * HD), ("mlp.gate_proj", F, H), ("mlp.up_proj", F, H), ("mlp.down_proj", H, F)):
    w = (torch.randn(r, c) * 60).clamp(-448, 448).to(torch.float8_e4m3fn)
    s = torch.rand((r + 127) // 128, (c + 127) // 128) * 0.01 + 1e-4
    t[f"{p}{name}.weight"], t[f"{p}{name}.weight_scale_inv"] = w, s
    full = w.float() * s.repeat_interleave(128, 0)[:r].repeat_interleave(128, 1)[:, :c]
    at = [(0, 0), (r - 1, c - 1), (0, c - 1), (r - 1, 0)] + [(random.randrange(r), random.randrange(c)) for _ in range(24)]
    expected[f"{p}{name}.weight"] = [[i, j, float("%.9g" % full[i, j])] for i, j in at]
save_file(t, out + "/model.safetensors", metadata={"format": "pt"})
with open(out + "/expected.json", "w") as f:
    json.dump(expected, f, separators=(",", ":"))
