# SPDX-License-Identifier: Apache-2.0
"""Goldens of real models: greedy tokens and sampled logits from transformers in f32 (eager).

Pinned: torch 2.15.0, transformers 5.24.0, gguf (with accelerate, which transformers asks for).
Both sides run the same numbers: the GGUF's weights, dequantised to f32. For each of 10 prompts the
model is fed the prompt, then 64 times the argmax (lowest id on ties). Each row of "steps" is the
position's [argmax, logit, second id, its logit] and the logits of the ids of "sample".

usage: real_models.py MODEL.gguf OUT.json
"""
import json
import os
import sys

import numpy as np
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

N_DECODE = 64
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees Celsius because",
    "1, 2, 3, 5, 8, 13,",
    "Q: What is the largest planet in the solar system?\nA:",
    "Die Hauptstadt von Deutschland ist Berlin. Sie hat",
    "In 1969, the first humans landed on the Moon. The mission was called",
    "To make a simple bread you need flour, water, salt and yeast. First,",
    "The quick brown fox jumps over the lazy dog. " * 8 + "The",
]
SAMPLE = [0, 7, 100, 1000, 20000, 45000]


def load(path):
    folder, name = os.path.split(os.path.abspath(path))
    model = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager")
    return model.eval(), AutoTokenizer.from_pretrained(folder, gguf_file=name)


def run(model, ids):
    steps, out, past, feed = [], [], None, torch.tensor([ids])
    with torch.no_grad():
        for _ in range(N_DECODE):
            r = model(feed, past_key_values=past, use_cache=True)
            past = r.past_key_values
            z = r.logits[0, -1].double().numpy()
            first = int(np.flatnonzero(z == z.max())[0])
            rest = z.copy()
            rest[first] = -np.inf
            second = int(rest.argmax())
            steps.append([first, float("%.8g" % z[first]), second, float("%.8g" % z[second])]
                         + [float("%.7g" % z[i]) for i in SAMPLE])
            out.append(first)
            feed = torch.tensor([[first]])
    return steps, out


def make(model, tokenizer, name):
    cases = []
    for text in PROMPTS:
        ids = tokenizer(text)["input_ids"]
        steps, out = run(model, ids)
        near = [i for i, s in enumerate(steps) if s[1] - s[3] < 1e-3]
        cases.append({"prompt": text, "ids": ids, "generated": out, "near_ties": near, "steps": steps})
    return {"model": name, "torch": torch.__version__, "transformers": transformers.__version__,
            "sample": SAMPLE, "cases": cases}


def write(golden, path):
    with open(path, "w", encoding="utf-8") as f:
        head = {k: v for k, v in golden.items() if k != "cases"}
        f.write(json.dumps(head)[:-1] + ', "cases": [\n')
        for i, c in enumerate(golden["cases"]):
            f.write((",\n" if i else "") + json.dumps(c, ensure_ascii=False, separators=(",", ":")))
        f.write("\n]}\n")


if __name__ == "__main__":
    model, tokenizer = load(sys.argv[1])
    write(make(model, tokenizer, os.path.basename(sys.argv[1])), sys.argv[2])
