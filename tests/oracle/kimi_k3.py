#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tiny random Kimi K3 checkpoint and the logits that the formulas of warp facts 14 give for it.

Made with numpy 2.x, torch 2.15.0, safetensors (for bf16 files alone):
    python tests/oracle/kimi_k3.py OUT
There is no public model code of this family, so the forward pass below is written from the facts, in float64, token by
token: attention residuals, gated latent attention without rotation, KDA with the bounded decay and a gate of full rank,
latent experts with a norm, SiTU. OUT/kimi_k3/ becomes a Hugging Face directory (text_config inside, names behind
language_model., A_log padded to head_dim, one tensor of a vision tower); OUT/kimi_k3.json a golden as families.py's.
"""
import json
import os
import shutil
import sys

import numpy as np
import safetensors.torch
import torch

sys.path.insert(0, os.path.dirname(__file__))
import families

V, HID, L, NH, NOPE, ROPE, VD, QL, KVL = 96, 32, 5, 4, 12, 8, 10, 24, 16
KH, KD, CONV = 3, 20, 4
E, TOPK, MOE, LAT, SHARED, DENSE, RES = 6, 3, 20, 28, 2, 64, 2
KDA = [0, 1, 3, 4]  # layer 2 is latent attention
EPS, BETA, LBETA, BOUND, SCALING = 1e-6, 4.0, 25.0, -5.0, 1.7
N_DECODE = families.N_DECODE

text = dict(model_type="kimi_k3", vocab_size=V, hidden_size=HID, intermediate_size=DENSE, num_hidden_layers=L,
            num_attention_heads=NH, num_key_value_heads=NH, max_position_embeddings=1024, rms_norm_eps=EPS,
            tie_word_embeddings=False, hidden_act="situ", activation_situ_beta=BETA, activation_situ_linear_beta=LBETA,
            q_lora_rank=QL, kv_lora_rank=KVL, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=VD,
            mla_use_nope=True, mla_use_output_gate=True, num_experts=E, num_experts_per_token=TOPK,
            num_shared_experts=SHARED, moe_intermediate_size=MOE, routed_expert_hidden_size=LAT,
            latent_moe_use_norm=True, moe_renormalize=True, routed_scaling_factor=SCALING, first_k_dense_replace=1,
            moe_router_activation_func="sigmoid", attn_res_block_size=RES,
            linear_attn_config=dict(kda_layers=[i + 1 for i in KDA], full_attn_layers=[3], num_heads=KH, head_dim=KD,
                                    short_conv_kernel_size=CONV, use_full_rank_gate=True, gate_lower_bound=BOUND))


def shapes():
    yield "model.embed_tokens.weight", (V, HID)
    yield "model.norm.weight", (HID,)
    yield "lm_head.weight", (V, HID)
    yield "model.output_attn_res_norm.weight", (HID,)
    yield "model.output_attn_res_proj.weight", (1, HID)
    c = KH * KD
    for i in range(L):
        p = f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            yield p + name + ".weight", (HID,)
        yield p + "self_attention_res_proj.weight", (1, HID)
        yield p + "mlp_res_proj.weight", (1, HID)
        a = p + "self_attn."
        if i in KDA:
            for x in "qkv":
                yield a + x + "_proj.weight", (c, HID)
                yield a + x + "_conv1d.weight", (c, 1, CONV)
            yield from ((a + "f_a_proj.weight", (KD, HID)), (a + "f_b_proj.weight", (c, KD)),
                        (a + "b_proj.weight", (KH, HID)), (a + "A_log", (KD,)), (a + "dt_bias", (c,)),
                        (a + "g_proj.weight", (c, HID)), (a + "o_norm.weight", (KD,)), (a + "o_proj.weight", (HID, c)))
        else:
            yield from ((a + "q_a_proj.weight", (QL, HID)), (a + "q_a_layernorm.weight", (QL,)),
                        (a + "q_b_proj.weight", (NH * (NOPE + ROPE), QL)),
                        (a + "kv_a_proj_with_mqa.weight", (KVL + ROPE, HID)), (a + "kv_a_layernorm.weight", (KVL,)),
                        (a + "kv_b_proj.weight", (NH * (NOPE + VD), KVL)), (a + "g_proj.weight", (NH * VD, HID)),
                        (a + "o_proj.weight", (HID, NH * VD)))
        if i == 0:
            yield from ((p + "mlp.gate_proj.weight", (DENSE, HID)), (p + "mlp.up_proj.weight", (DENSE, HID)),
                        (p + "mlp.down_proj.weight", (HID, DENSE)))
            continue
        m = p + "block_sparse_moe."
        yield from ((m + "gate.weight", (E, HID)), (m + "gate.e_score_correction_bias", (E,)),
                    (m + "routed_expert_down_proj.weight", (LAT, HID)), (m + "routed_expert_up_proj.weight", (HID, LAT)),
                    (m + "routed_expert_norm.weight", (LAT,)))
        for e in range(E):
            yield from ((f"{m}experts.{e}.w1.weight", (MOE, LAT)), (f"{m}experts.{e}.w3.weight", (MOE, LAT)),
                        (f"{m}experts.{e}.w2.weight", (LAT, MOE)))
        yield from ((m + "shared_experts.gate_proj.weight", (MOE * SHARED, HID)),
                    (m + "shared_experts.up_proj.weight", (MOE * SHARED, HID)),
                    (m + "shared_experts.down_proj.weight", (HID, MOE * SHARED)))


def weights():
    rng = np.random.default_rng(3)
    out = {}
    for name, shape in shapes():
        x = rng.standard_normal(shape)
        if "norm" in name:
            x = 1 + 0.2 * x
        elif name.endswith("bias"):
            x = 0.3 * x
        elif name.endswith("conv1d.weight"):
            x = 0.6 * x
        else:
            x = x * (1.6 if "embed" in name or "lm_head" in name else 1.2) / shape[-1] ** 0.5
        out[name] = torch.tensor(x).to(torch.bfloat16)
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def rms(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def situ(g, u):
    return BETA * np.tanh(g / BETA) * sigmoid(g) * LBETA * np.tanh(u / LBETA)


class Model:
    def __init__(self, w):
        self.w = {k: t.to(torch.float64).numpy() for k, t in w.items()}
        self.reset()

    def reset(self):
        self.conv = {i: np.zeros((3, CONV - 1, KH * KD)) for i in KDA}
        self.s = {i: np.zeros((KH, KD, KD)) for i in KDA}
        self.cache = {i: [] for i in range(L)}

    def kda(self, i, h):
        w = lambda n: self.w[f"model.layers.{i}.self_attn.{n}"]
        qkv = []
        for k, x in enumerate("qkv"):
            y = w(x + "_proj.weight") @ h
            past = np.vstack([self.conv[i][k], y])
            self.conv[i][k] = past[1:]
            y = (past * w(x + "_conv1d.weight")[:, 0, :].T).sum(0)
            qkv.append((y * sigmoid(y)).reshape(KH, KD))
        q, k, v = qkv
        z = (w("f_b_proj.weight") @ (w("f_a_proj.weight") @ h) + w("dt_bias")).reshape(KH, KD)
        g = BOUND * sigmoid(np.exp(w("A_log")[:KH])[:, None] * z)
        beta = sigmoid(w("b_proj.weight") @ h)
        unit = lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-12)
        q, k = unit(q) / KD ** 0.5, unit(k)
        o = np.zeros((KH, KD))
        for j in range(KH):
            s = np.exp(g[j])[:, None] * self.s[i][j]
            s = s + np.outer(k[j], beta[j] * (v[j] - s.T @ k[j]))
            self.s[i][j] = s
            o[j] = s.T @ q[j]
        o = rms(o, w("o_norm.weight")).reshape(-1) * sigmoid(w("g_proj.weight") @ h)
        return w("o_proj.weight") @ o

    def mla(self, i, h):
        w = lambda n: self.w[f"model.layers.{i}.self_attn.{n}.weight"]
        q = (w("q_b_proj") @ rms(w("q_a_proj") @ h, w("q_a_layernorm"))).reshape(NH, NOPE + ROPE)
        c = w("kv_a_proj_with_mqa") @ h
        kv = (w("kv_b_proj") @ rms(c[:KVL], w("kv_a_layernorm"))).reshape(NH, NOPE + VD)  # not absorbed
        self.cache[i].append((np.hstack([kv[:, :NOPE], np.tile(c[KVL:], (NH, 1))]), kv[:, NOPE:]))
        keys = np.stack([x[0] for x in self.cache[i]])
        values = np.stack([x[1] for x in self.cache[i]])
        score = np.einsum("hd,thd->ht", q, keys) / (NOPE + ROPE) ** 0.5
        p = np.exp(score - score.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        o = np.einsum("ht,thd->hd", p, values).reshape(-1)
        return w("o_proj") @ (o * sigmoid(w("g_proj") @ h))

    def ffn(self, i, h):
        p = f"model.layers.{i}."
        if i == 0:
            w = lambda n: self.w[f"{p}mlp.{n}_proj.weight"]
            return w("down") @ situ(w("gate") @ h, w("up") @ h)
        w = lambda n: self.w[f"{p}block_sparse_moe.{n}"]
        s = sigmoid(w("gate.weight") @ h)
        picked = np.argsort(-(s + w("gate.e_score_correction_bias")), kind="stable")[:TOPK]
        weight = s[picked] / (s[picked].sum() + 1e-20) * SCALING
        x = w("routed_expert_down_proj.weight") @ h
        y = np.zeros(LAT)
        for e, a in zip(picked, weight):
            y += a * (w(f"experts.{e}.w2.weight") @ situ(w(f"experts.{e}.w1.weight") @ x, w(f"experts.{e}.w3.weight") @ x))
        y = w("routed_expert_up_proj.weight") @ rms(y, w("routed_expert_norm.weight"))
        return y + w("shared_experts.down_proj.weight") @ situ(w("shared_experts.gate_proj.weight") @ h,
                                                               w("shared_experts.up_proj.weight") @ h)

    def mix(self, blocks, ps, name):
        norm, proj = self.w[name + "_norm.weight"], self.w[name + "_proj.weight"].reshape(-1)
        vectors = np.stack(blocks + [ps])
        score = rms(vectors, norm) @ proj
        p = np.exp(score - score.max())
        return (p / p.sum()) @ vectors

    def step(self, token):
        x = self.w["model.embed_tokens.weight"][token]
        blocks = []
        for i in range(L):
            p = f"model.layers.{i}."
            ps = x
            if blocks:
                x = self.mix(blocks, ps, p + "self_attention_res")
            if i % RES == 0:
                blocks.append(ps)
                ps = None
            h = rms(x, self.w[p + "input_layernorm.weight"])
            a = self.kda(i, h) if i in KDA else self.mla(i, h)
            ps = a if ps is None else ps + a
            x = self.mix(blocks, ps, p + "mlp_res")
            ps = ps + self.ffn(i, rms(x, self.w[p + "post_attention_layernorm.weight"]))
            x = ps
        x = self.mix(blocks, x, "model.output_attn_res")
        return self.w["lm_head.weight"] @ rms(x, self.w["model.norm.weight"])


def golden(model):
    out = []
    for n in families.PROMPTS:
        tokens = families.prompt(n)
        model.reset()
        logits = [model.step(t) for t in tokens]
        generated = []
        for _ in range(N_DECODE):
            generated.append(int(np.argmax(logits[-1])))
            logits.append(model.step(generated[-1]))
        out.append(families.positions_of(tokens, generated, np.stack(logits)))
    return {"prompts": out}


if __name__ == "__main__":
    path = f"{sys.argv[1]}/kimi_k3"
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    tensors = weights()
    named = {"language_model." + k: t for k, t in tensors.items()}
    named["vision_tower.patch_embed.proj.weight"] = torch.zeros(4, 4, dtype=torch.bfloat16)
    safetensors.torch.save_file(named, path + "/model.safetensors", metadata={"format": "pt"})
    with open(path + "/config.json", "w") as f:
        json.dump(dict(architectures=["KimiK3ForConditionalGeneration"], model_type="kimi_k3", text_config=text,
                       eos_token_id=2), f, indent=1)
    families.tokenizer(path + "/tokenizer.json")
    with open(f"{sys.argv[1]}/kimi_k3.json", "w") as f:
        json.dump(golden(Model(tensors)), f, separators=(",", ":"))
    print(sum(os.path.getsize(f"{path}/{x}") for x in os.listdir(path)))
