#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of the tiny checkpoints, made by llama.cpp's own converter.

    python tests/oracle/gguf_models.py LLAMA_CPP tests/golden/convert/gguf
LLAMA_CPP: a checkout of the source that node-llama-cpp 3.21.1 carries (llama/gitRelease.bundle);
torch 2.15.0, transformers 5.24.0. Weights as bf16, norms f32, no tokenizer.
"""
import os
import pathlib
import sys

sys.path[:0] = [sys.argv[1], sys.argv[1] + "/gguf-py"]
import gguf  # noqa: E402
import torch  # noqa: E402
import conversion  # noqa: E402
from conversion import ModelBase  # noqa: E402

HERE = pathlib.Path(os.path.dirname(__file__))
for name in ("llama_rope3", "gemma", "phi3_longrope", "qwen2", "smollm3", "deepseek_v3"):
    source = HERE / "../golden/families" / name
    hparams = ModelBase.load_hparams(source, False)
    if name == "deepseek_v3":  # the released config.json says it, transformers' own does not
        hparams["scoring_func"] = "sigmoid"
    cls = conversion.get_model_class(hparams["architectures"][0])
    cls.set_vocab = lambda self: self._set_vocab_none()
    with torch.inference_mode():
        cls(source, gguf.LlamaFileType.MOSTLY_BF16, pathlib.Path(sys.argv[2]) / f"{name}.gguf", eager=True,
            hparams=hparams).write()
