#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny random checkpoints of every model family, and the logits that transformers gives for them.

Made with transformers 5.24.0, torch 2.15.0, tokenizers 0.23.3:
    python tests/oracle/families.py OUT [NAME ...]
OUT/<name>/ becomes a Hugging Face directory (config.json, model.safetensors in bf16, tokenizer);
OUT/<name>.json holds the golden: for prompts of 5, 63 and 700 tokens, then 16 greedy tokens (argmax,
lowest id on ties, eos does not stop), float32 logits of chosen positions, eager attention, one
pass over the prompt, weights widened to f32:
    {"prompts": [{"tokens": [...], "generated": [16 ids],
                  "positions": [{"i": position, "argmax": id, "ids": [...], "logits": [...]}]}]}
ids are the eight largest, then four fixed ones. position i of a decoded token is its own index.
"""
import json
import os
import re
import shutil
import sys

import numpy as np
import safetensors.torch
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import AutoModelForCausalLM

transformers.logging.set_verbosity_error()
VOCAB, PROMPTS, N_DECODE = 96, (5, 63, 700), 16
COMMON = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
              num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=1024,
              bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=False)
# head_dim 16 unless said: 4 heads of 8 would make rotary tests shallow
H16 = dict(head_dim=16)


def rope(kind="default", theta=10000.0, **kw):
    return dict(rope_parameters=dict(rope_type=kind, rope_theta=theta, **kw))


MLA = dict(kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=12, v_head_dim=10, num_key_value_heads=4)
DEEPSEEK_MOE = dict(n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=24,
                    n_shared_experts=2, first_k_dense_replace=1, routed_scaling_factor=2.5, num_mtp_layers=0)
LONG = dict(short_factor=[1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0],
            long_factor=[1.0, 1.3, 2.0, 4.0, 7.0, 11.0, 14.0, 16.0])

VARIANTS = {
    "llama": ("llama", {**COMMON, **H16}),
    "llama_tied_theta": ("llama", {**COMMON, **rope(theta=500000.0), "tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    "llama_rope3": ("llama", {**COMMON, **H16, **rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0,
                                                    high_freq_factor=4.0, original_max_position_embeddings=64)}),
    "llama_linear": ("llama", {**COMMON, **H16, **rope("linear", factor=4.0)}),
    "llama_yarn": ("llama", {**COMMON, **H16, **rope("yarn", factor=4.0, original_max_position_embeddings=64,
                                                   beta_fast=32.0, beta_slow=1.0)}),
    "llama_yarn_exact": ("llama", {**COMMON, **H16, **rope("yarn", factor=4.0, original_max_position_embeddings=64,
                                                         truncate=False)}),
    "smollm3": ("smollm3", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 4}),
    "smollm3_sliding": ("smollm3", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1,
                                  "num_hidden_layers": 4, "no_rope_layers": [0, 1, 0, 1], "use_sliding_window": True,
                                  "sliding_window": 40, "tie_word_embeddings": True}),
    "mistral": ("mistral", {**COMMON, **H16, "sliding_window": 48}),
    "qwen2": ("qwen2", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1}),
    "qwen2_sliding": ("qwen2", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 3,
                              "use_sliding_window": True, "sliding_window": 40, "max_window_layers": 1}),
    "qwen3": ("qwen3", {**COMMON, **H16, "tie_word_embeddings": True}),
    "qwen3_yarn": ("qwen3", {**COMMON, **H16, **rope("yarn", 1000000.0, factor=2.0,
                                                   original_max_position_embeddings=256)}),
    "gemma": ("gemma", {**COMMON, **H16, "num_key_value_heads": 1, "tie_word_embeddings": True}),
    "gemma2": ("gemma2", {**COMMON, **H16, "num_hidden_layers": 3, "sliding_window": 32, "query_pre_attn_scalar": 24,
                        "tie_word_embeddings": True}),
    "gemma3": ("gemma3_text", {**COMMON, **H16, "num_hidden_layers": 3, "sliding_window": 32, "query_pre_attn_scalar": 16,
                             "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
                             "tie_word_embeddings": True}),
    "gemma3_linear": ("gemma3_text", {
        **COMMON, **H16, "num_hidden_layers": 3, "sliding_window": 40, "query_pre_attn_scalar": 20,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "tie_word_embeddings": True,
        "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
                            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
    "phi3": ("phi3", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": 100}),
    "phi3_longrope": ("phi3", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1,
                             "original_max_position_embeddings": 64, **rope("longrope", **LONG)}),
    "qwen2_moe": ("qwen2_moe", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 6,
                              "num_experts_per_tok": 3, "moe_intermediate_size": 32,
                              "shared_expert_intermediate_size": 48, "norm_topk_prob": False}),
    "qwen3_moe": ("qwen3_moe", {**COMMON, **H16, "num_hidden_layers": 3, "num_experts": 8, "num_experts_per_tok": 3,
                              "moe_intermediate_size": 32, "norm_topk_prob": True, "mlp_only_layers": [1]}),
    "deepseek_v2": ("deepseek_v2", {
        **COMMON, **MLA, "q_lora_rank": 24, "num_hidden_layers": 3, "n_routed_experts": 8, "num_experts_per_tok": 3,
        "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "moe_intermediate_size": 24,
        "n_shared_experts": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 6.0,
        **rope("yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0, mscale=0.707,
               mscale_all_dim=0.707)}),
    "deepseek_v2_lite": ("deepseek_v2", {
        **COMMON, **MLA, "q_lora_rank": None, "n_routed_experts": 6, "num_experts_per_tok": 2,
        "topk_method": "greedy", "n_group": 1, "topk_group": 1, "moe_intermediate_size": 24, "n_shared_experts": 1,
        "first_k_dense_replace": 1, "routed_scaling_factor": 1.0,
        **rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=0.707,
               mscale_all_dim=0.707)}),
    "deepseek_v3": ("deepseek_v3", {
        **COMMON, **MLA, **DEEPSEEK_MOE, "q_lora_rank": 24, "num_hidden_layers": 3,
        **rope("yarn", factor=4.0, original_max_position_embeddings=64, beta_fast=32.0, beta_slow=1.0, mscale=0.8,
               mscale_all_dim=0.8)}),
    "deepseek_v3_direct": ("deepseek_v3", {
        **COMMON, **MLA, **DEEPSEEK_MOE, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "norm_topk_prob": False,
        "rms_norm_eps": 1e-2, "rope_interleave": False, **rope("yarn", factor=4.0, original_max_position_embeddings=64, mscale=1.0,
                                         mscale_all_dim=0.5)}),
    "kimi_linear": ("kimi_linear", {
        **COMMON, **MLA, "num_hidden_layers": 4, "q_lora_rank": None, "num_experts": 8, "num_experts_per_token": 3,
        "moe_intermediate_size": 24, "num_shared_experts": 1, "routed_scaling_factor": 2.446, "rms_norm_eps": 1e-6,
        "moe_renormalize": True, "num_expert_group": 1, "topk_group": 1,
        "layer_types": ["linear_attention", "linear_attention", "full_attention", "linear_attention"],
        "linear_head_dim": 20, "linear_num_heads": 3, "linear_conv_kernel_dim": 4}),
    # as many heads of both kinds of attention, which GGUF takes for granted
    "kimi_linear_even": ("kimi_linear", {
        **COMMON, **MLA, "num_hidden_layers": 3, "q_lora_rank": None, "num_experts": 6, "num_experts_per_token": 2,
        "moe_intermediate_size": 24, "num_shared_experts": 2, "routed_scaling_factor": 2.446, "rms_norm_eps": 1e-5,
        "moe_renormalize": True, "num_expert_group": 1, "topk_group": 1,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_head_dim": 12, "linear_num_heads": 4, "linear_conv_kernel_dim": 4}),
    # heads that take more than one step of everything that works in blocks. Here and in deepseek_v3_direct an
    # epsilon that shows which norms use it: those of latents do not
    "kimi_linear_wide": ("kimi_linear", {
        **COMMON, **MLA, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "kv_lora_rank": 40,
        "qk_nope_head_dim": 36, "v_head_dim": 20, "q_lora_rank": 20, "num_experts": 4, "num_experts_per_token": 2,
        "moe_intermediate_size": 24, "num_shared_experts": 2, "routed_scaling_factor": 1.5, "rms_norm_eps": 1e-2,
        "layer_types": ["linear_attention", "full_attention"], "linear_head_dim": 72, "linear_num_heads": 1,
        "linear_conv_kernel_dim": 3}),
    "phi4_partial": ("phi3", {**COMMON, "num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True,
                            **rope(partial_rotary_factor=0.75)}),
}


def tokenizer(path):
    vocab = {"<pad>": 0, "<s>": 1, "</s>": 2}
    for c in range(33, 33 + VOCAB - 3):
        vocab[chr(c)] = c - 30
    tok = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<pad>"))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(["<pad>", "<s>", "</s>"])
    tok.save(path)


def prompt(n):
    return [int(x) for x in np.random.default_rng(1000 + n).integers(3, VOCAB, size=n)]


def positions_of(tokens, generated, all_logits):
    """One prompt of a golden, of logits [n + 16][vocab]."""
    n = len(tokens)
    keep = sorted(set(range(0, n, 100)) | {n - 2, n - 1} | set(range(n, n + N_DECODE)))
    positions = []
    for i in keep:
        row = all_logits[i]
        ids = [int(k) for k in np.argsort(-row, kind="stable")[:8]] + [0, 7, 50, VOCAB - 1]
        positions.append({"i": i, "argmax": int(np.argmax(row)), "ids": ids,
                          "logits": [float("%.9g" % row[k]) for k in ids]})
    return {"tokens": tokens, "generated": generated, "positions": positions}


@torch.no_grad()
def golden(model):
    out = []
    for n in PROMPTS:
        tokens = prompt(n)
        rows = model(torch.tensor([tokens]), use_cache=True)
        logits, cache = [rows.logits[0].float()], rows.past_key_values
        generated = []
        for _ in range(N_DECODE):
            generated.append(int(np.argmax(logits[-1][-1].numpy())))
            rows = model(torch.tensor([[generated[-1]]]), past_key_values=cache, use_cache=True)
            cache = rows.past_key_values
            logits.append(rows.logits[0].float())
        all_logits = torch.cat(logits).numpy()  # [n + 16][vocab]
        out.append(positions_of(tokens, generated, all_logits))
    return {"prompts": out}


def rename_tensors(file, kind, config):
    """To what releases have: the FFN of Kimi-Linear's dense layers is mlp.X, not block_sparse_moe.X as transformers
    writes it; DeepSeek-V3 has a layer behind the last, which predicts one more token and which transformers skips."""
    tensors = safetensors.torch.load_file(file)
    old = re.compile(r"\.block_sparse_moe\.((?:gate|up|down)_proj\.)")
    tensors = {old.sub(r".mlp.\1", key): t for key, t in tensors.items()}
    if kind == "deepseek_v3":
        tensors[f"model.layers.{config.num_hidden_layers}.enorm.weight"] = torch.ones(4, dtype=torch.bfloat16)
    if kind in ("deepseek_v3", "kimi_linear"):
        safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


def make(out, name):
    kind, cfg = VARIANTS[name]
    config = transformers.AutoConfig.for_model(kind, **cfg)
    torch.manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_config(config)
    for key, p in model.named_parameters():
        if "norm" in key:
            p.data = (0.0 if kind.startswith("gemma") else 1.0) + 0.2 * torch.randn_like(p)
        elif key.endswith("bias"):
            p.data = 0.3 * torch.randn_like(p)
        else:
            p.data = torch.randn_like(p) * (1.6 if "embed" in key or "lm_head" in key else 1.2) / p.shape[-1] ** 0.5
    for key, p in model.named_buffers():
        if key.endswith("e_score_correction_bias"):
            p.data = 0.3 * torch.randn_like(p)
    path = f"{out}/{name}"
    shutil.rmtree(path, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(path)
    rename_tensors(path + "/model.safetensors", kind, config)
    if os.path.exists(path + "/generation_config.json"):
        os.remove(path + "/generation_config.json")
    tokenizer(path + "/tokenizer.json")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()
    with open(f"{out}/{name}.json", "w") as f:
        json.dump(golden(model), f, separators=(",", ":"))
    print(name, sum(os.path.getsize(f"{path}/{x}") for x in os.listdir(path)), os.path.getsize(f"{out}/{name}.json"))


LOOPS = {"llama_loops": False, "llama_loops_norm": True}  # name: is the final norm applied after every pass


@torch.no_grad()
def make_loops(out, name):
    """The stack of `llama` (made before), three times over: six layers of which i has the weights of i mod 2, each
    with a cache of its own. No directory of its own: arch.num_loops, arch.loop_final_norm over llama's file."""
    base = AutoModelForCausalLM.from_pretrained(f"{out}/llama", dtype=torch.float32, attn_implementation="eager").eval()
    config = transformers.AutoConfig.from_pretrained(f"{out}/llama")
    config.num_hidden_layers = 6
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    weights = base.state_dict()
    model.load_state_dict({key: weights[key if ".layers." not in key else ".".join(
        [*key.split(".")[:2], str(int(key.split(".")[2]) % 2), *key.split(".")[3:]])] for key in model.state_dict()})
    for i in (2, 4):
        if LOOPS[name]:
            model.model.layers[i].register_forward_pre_hook(lambda _, args: (model.model.norm(args[0]), *args[1:]))
    with open(f"{out}/{name}.json", "w") as f:
        json.dump(golden(model), f, separators=(",", ":"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.makedirs(sys.argv[1], exist_ok=True)
    for variant in sys.argv[2:] or [*VARIANTS, *LOOPS]:
        (make_loops if variant in LOOPS else make)(sys.argv[1], variant)
