# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/cli/tiny.json: what other programs say about tests/golden/cmf/files/tiny-f32.cmf.

Logits and greedy tokens by transformers 5.24.0 on torch 2.15.0 (the file's f32 tensors loaded into
LlamaForCausalLM), token ids by tokenizers 0.23.3, the rendered chat by jinja2 3.1.6 set up as
transformers does. Run: python tests/oracle/cli_tiny.py
"""
import json
import os
import struct

import jinja2
import numpy as np
import tokenizers
import torch
import transformers
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FILES = os.path.join(ROOT, "golden", "cmf", "files")
PATH = os.path.join(FILES, "tiny-f32.cmf")

blob = open(PATH, "rb").read()
off = struct.unpack_from("<12Q", blob, 0x10)
header = json.loads(blob[off[0]:off[0] + off[1]])
vocab = blob[off[8]:off[8] + off[9]]
info = json.load(open(os.path.join(FILES, "tiny-f32.json")))
arch = header["arch"]

weights = {}
for t in info["tensors"]:
    a = np.frombuffer(blob, "<f4", t["nbytes"] // 4, off[4] + t["off"]).reshape(t["shape"])
    weights[t["name"]] = torch.from_numpy(a.copy())

config = transformers.LlamaConfig(
    hidden_size=arch["hidden_size"], intermediate_size=arch["intermediate_size"],
    num_hidden_layers=arch["num_layers"], num_attention_heads=arch["num_attention_heads"],
    num_key_value_heads=arch["num_kv_heads"], head_dim=arch["head_dim"],
    vocab_size=arch["vocab_size"], rms_norm_eps=arch["rms_norm_eps"],
    rope_theta=arch["rope_theta"], tie_word_embeddings=False,
    max_position_embeddings=arch["max_position_embeddings"])
model = transformers.LlamaForCausalLM(config).eval()
missing, unexpected = model.load_state_dict(weights, strict=False)
assert not unexpected and all("rotary" in m for m in missing), (missing, unexpected)

TOKENS = [5, 90, 200, 33, 17, 301, 8]
N_DECODE = 12
with torch.no_grad():
    ids = list(TOKENS)
    generated = []
    for _ in range(N_DECODE):
        row = model(torch.tensor([ids])).logits[0, -1]
        generated.append(int(row.argmax()))
        ids.append(generated[-1])
    logits = model(torch.tensor([ids])).logits[0]
    # Perplexity of a text in windows of 32 without BOS: every token but a window's first.
    tok = tokenizers.Tokenizer.from_str(vocab.decode())
    text = "The quick brown fox jumps over the lazy dog. " * 6
    text_ids = tok.encode(text, add_special_tokens=False).ids
    nll, n = 0.0, 0
    for at in range(0, len(text_ids), 32):
        w = text_ids[at:at + 32]
        lp = torch.log_softmax(model(torch.tensor([w])).logits[0].double(), -1)
        for i in range(1, len(w)):
            nll -= float(lp[i - 1, w[i]])
            n += 1


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                    extensions=["jinja2.ext.loopcontrols"])
env.globals["raise_exception"] = raise_exception
messages = [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Say <|im_end|> and go."}]
rendered = env.from_string(header["tokenizer_config"]["chat_template"]).render(
    messages=messages, add_generation_prompt=True)

texts = ["Hello world", "  two  spaces\n", "<|im_start|>user", "na\u00efve \U0001f600 \u65e5\u672c", ""]
out = {
    "tokens": TOKENS,
    "generated": generated,
    "argmax": [int(r.argmax()) for r in logits],
    "logits_first": [[float(x) for x in r[:6]] for r in logits],
    "ppl": {"text": text, "ctx": 32, "nll": nll / n, "n_tokens": n,
            "has_bos": tok.encode("a").ids != tok.encode("a", add_special_tokens=False).ids},
    "tokenize": [{"text": t, "ids": tok.encode(t, add_special_tokens=True).ids,
                  "tokens": tok.encode(t, add_special_tokens=True).tokens} for t in texts],
    "messages": messages,
    "rendered": rendered,
}
path = os.path.join(ROOT, "golden", "cli", "tiny.json")
with open(path, "w") as f:
    json.dump(out, f, indent=1, ensure_ascii=True)
    f.write("\n")
print(os.path.getsize(path), out["generated"], out["ppl"]["nll"], out["ppl"]["n_tokens"], out["ppl"]["has_bos"])
