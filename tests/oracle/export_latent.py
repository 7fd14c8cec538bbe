#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Directories that `caisson export` made of DeepSeek-V2, V3 and Kimi-Linear, loaded by transformers: the
logits are those of the checkpoints that the files were made of.

    export_latent.py CAISSON     (torch 2.15.0, transformers 5.24.0)
"""
import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

FAMILIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "families")
TOKENS = torch.tensor([[43, 10, 92, 89, 49, 3, 17]])


def logits(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    with torch.inference_mode():
        return model(TOKENS).logits


def main(caisson):
    for family in ("deepseek_v2", "deepseek_v2_lite", "deepseek_v3", "deepseek_v3_direct", "kimi_linear"):
        with tempfile.TemporaryDirectory() as work:
            cmf, hf = os.path.join(work, "m.cmf"), os.path.join(work, "hf")
            source = os.path.join(FAMILIES, family)
            for args in (("convert", source, "-o", cmf, "--quant", "f32"), ("export", cmf, "-o", hf)):
                subprocess.run([caisson, *args], check=True, stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)
            assert torch.equal(logits(hf), logits(source)), family
            print(family, "gives the same logits, bit for bit")


if __name__ == "__main__":
    main(*sys.argv[1:])
