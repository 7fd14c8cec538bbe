#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A directory that `caisson export` made, loaded by transformers: every value of the safetensors
package is the Python reader's, and the greedy answer is that of `caisson run --compute f32`.

    export_model.py CAISSON MODEL.cmf [QUESTION]     (torch 2.15.0, transformers 5.24.0, safetensors)
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
from caisson_cmf import Model  # noqa: E402

TOKENS = 24


def main(caisson, path, question="What is the capital of France?"):
    with tempfile.TemporaryDirectory() as hf:
        subprocess.run([caisson, "export", path, "-o", hf], check=True, stderr=subprocess.DEVNULL)
        ours = Model(path)
        with safe_open(os.path.join(hf, "model.safetensors"), "np") as f:
            assert set(f.keys()) == set(ours.tensors)
            for name in f.keys():
                a, b = f.get_tensor(name), ours.tensors[name].values()
                assert np.array_equal(a.view(np.uint32), b.view(np.uint32)), name
        model = AutoModelForCausalLM.from_pretrained(hf)
        tokenizer = AutoTokenizer.from_pretrained(hf)
        prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}],
                                               add_generation_prompt=True, return_tensors="pt",
                                               return_dict=True)
        out = model.generate(**prompt, max_new_tokens=TOKENS, do_sample=False)
        theirs = tokenizer.decode(out[0][prompt["input_ids"].shape[1]:], skip_special_tokens=True)
        answer = subprocess.run([caisson, "run", path, question, "-n", str(TOKENS), "--temp", "0",
                                 "--compute", "f32"], check=True, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL).stdout.decode()
        print("transformers: %r\ncaisson:      %r" % (theirs, answer.strip()))
        assert theirs.strip() == answer.strip()
        print("%d tensors equal to the bit" % len(ours.tensors))


if __name__ == "__main__":
    main(*sys.argv[1:])
