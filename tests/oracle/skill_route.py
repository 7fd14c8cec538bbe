# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/cli/skill_route.json: which skill of tests/golden/cmf/files/tiny-skills.cmf a
prompt goes to, and what blends of both say.

transformers 5.24.0 on torch 2.15.0 runs the base (tensors decoded by python/caisson_cmf, which
shares no code with the C), tokens by tokenizers 0.23.3; the errors are written out from the
format's text. Run: python tests/oracle/skill_route.py
"""
import base64
import json
import os
import sys

import numpy as np
import tokenizers
import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
from caisson_cmf import Model  # noqa: E402

PATH = os.path.join(ROOT, "tests", "golden", "cmf", "files", "tiny-skills.cmf")
PROMPTS = ["hello world", "SELECT name FROM customers WHERE", "a", "the the the fox  jumps\n"]
BLENDS = [{"sql": 0.7, "poem": 0.3}, {"poem": 1.0, "sql": 3.0}]
N_DECODE = 40
EMA, PERIOD = 0.2, 8

cmf = Model(PATH)
arch, registry = cmf.header["arch"], {s["id"]: s for s in cmf.header["skills"]}
tok = tokenizers.Tokenizer.from_str(cmf.vocab.decode())


def build(weights_of):
    config = transformers.LlamaConfig(
        hidden_size=arch["hidden_size"], intermediate_size=arch["intermediate_size"],
        num_hidden_layers=arch["num_layers"], num_attention_heads=arch["num_attention_heads"],
        num_key_value_heads=arch["num_kv_heads"], head_dim=arch["head_dim"],
        vocab_size=arch["vocab_size"], rms_norm_eps=arch["rms_norm_eps"],
        rope_theta=arch["rope_theta"], tie_word_embeddings=arch["tie_word_embeddings"],
        max_position_embeddings=arch["max_position_embeddings"])
    model = transformers.LlamaForCausalLM(config).eval()
    names = [n for n in cmf.tensors if not n.startswith("skill.")]
    weights = {n: torch.from_numpy(np.array(weights_of(n), dtype=np.float32)) for n in names}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and not [m for m in missing if "rotary" not in m], (missing, unexpected)
    return model


def hidden(model, ids, layer):
    """The residual stream behind a layer, before any norm."""
    kept = []
    hook = model.model.layers[layer].register_forward_hook(
        lambda _m, _i, out: kept.append(out[0] if isinstance(out, tuple) else out))
    with torch.no_grad():
        model(torch.tensor([ids]))
    hook.remove()
    return kept[0].reshape(len(ids), -1).double().numpy()


def errors(phi):
    out = {}
    for name, record in registry.items():
        s = record["selection"]
        mean, basis = (np.frombuffer(base64.b64decode(s[k]), "<f2").astype(np.float64)
                       for k in ("mean", "basis"))
        p = phi / np.linalg.norm(phi) if s["metric"] == "mse_unit" else phi
        r = p - mean
        raw = max(0.0, r @ r - sum(float(b @ r) ** 2 for b in basis.reshape(s["rank"], -1)))
        out[name] = {"raw": raw, "error": raw / max(p @ p, 1e-12)}
    return out


base = build(cmf.values)
layer = registry["sql"]["selection"]["phi_layer"]
assert layer == registry["poem"]["selection"]["phi_layer"]
routes = []
for text in PROMPTS:
    ids = tok.encode(text, add_special_tokens=False).ids
    scores = errors(hidden(base, ids, layer).mean(0))
    best = sorted(scores, key=lambda s: scores[s]["raw"])
    routing = cmf.header["routing"]
    p = np.exp([-(scores[s]["raw"] - scores[best[0]]["raw"]) / routing["temperature"] for s in best])
    margin = 1 / (1 + scores[best[0]]["raw"]) - 1 / (1 + scores[best[1]]["raw"])
    selection = registry[best[0]]["selection"]
    far = 1 / (1 + np.exp(-(scores[best[0]]["raw"] - selection.get("err_mean", 0))
                          / max(selection.get("err_std", 1), 1e-4)))
    novelty = 0.5 * far + 0.25 / (1 + 8 * margin) + 0.25 * (1 - p[0] / p.sum())
    routes.append({"prompt": text, "scores": scores, "winner": best[0], "margin": margin,
                   "novelty": novelty, "is_novel": bool(novelty > routing["novelty_theta"])})

blends = []
for parts in BLENDS:
    total = sum(parts.values())
    model = build(lambda n, parts=parts, total=total:
                  sum(np.float32(w / total) * cmf.values(n, s)
                      for s, w in parts.items()))
    ids = tok.encode(PROMPTS[0], add_special_tokens=False).ids
    with torch.no_grad():
        p = torch.softmax(model(torch.tensor([ids])).logits[0, -1].double(), -1)
    top = p.topk(8)
    blends.append({"parts": parts, "prompt": PROMPTS[0], "ids": top.indices.tolist(),
                   "p": top.values.tolist()})

# Per-token routing while nothing is switched: greedy tokens of the base, and what each check sees.
ids = tok.encode(PROMPTS[0], add_special_tokens=False).ids
n_prompt = len(ids)
for _ in range(N_DECODE):
    with torch.no_grad():
        ids.append(int(base(torch.tensor([ids])).logits[0, -1].argmax()))
phi, checks = None, []
for i, h in enumerate(hidden(base, ids, layer)):
    phi = h if phi is None else (1 - EMA) * phi + EMA * h
    n = i + 1 - n_prompt
    if n > 0 and n % PERIOD == 0:
        checks.append({"n_decoded": n, "scores": errors(phi)})

out = {"routes": routes, "blends": blends,
       "dynamic": {"prompt": PROMPTS[0], "ids": ids[n_prompt:], "checks": checks}}
target = os.path.join(ROOT, "tests", "golden", "cli", "skill_route.json")
with open(target, "w") as f:
    json.dump(out, f, indent=1, ensure_ascii=True)
    f.write("\n")
print(os.path.getsize(target), [r["winner"] for r in routes],
      [c["scores"]["sql"]["error"] for c in checks])
