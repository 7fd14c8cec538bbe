#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Phi checkpoints, converted and exported again: transformers gives the same logits, bit for bit.

    export_phi.py CAISSON     (torch 2.15.0, transformers 5.24.0)
"""
import os
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM

FAMILIES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "golden", "families")
IDS = torch.tensor([[5, 9, 20, 33, 17, 3, 8] * 6])


def logits(path):
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)(IDS).logits


def main(caisson):
    for name in ("phi3", "phi3_longrope", "phi4_partial"):
        with tempfile.TemporaryDirectory() as folder:
            source, cmf, back = (os.path.join(FAMILIES, name), os.path.join(folder, "a.cmf"),
                                 os.path.join(folder, "back"))
            for command in (["convert", source, "-o", cmf, "--quant", "f32"], ["export", cmf, "-o", back]):
                subprocess.run([caisson, *command], check=True, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
            assert torch.equal(logits(source), logits(back)), name
            print("%s: equal" % name)


if __name__ == "__main__":
    main(*sys.argv[1:])
