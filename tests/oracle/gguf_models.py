#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files of the tiny checkpoints, made by llama.cpp's own converter.

    python tests/oracle/gguf_models.py LLAMA_CPP tests/golden/convert/gguf [NAME ...]
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


def as_released(name, hparams):
    """What the released config.json says and transformers' own does not, or in other words. deepseek_v2_lite stays
    without: as files of before the key."""
    if name in ("deepseek_v2", "deepseek_v3"):
        hparams["scoring_func"] = "softmax" if name == "deepseek_v2" else "sigmoid"
    if name == "kimi_linear_even":
        kinds = list(enumerate(hparams["layer_types"], 1))
        hparams["linear_attn_config"] = {
            "kda_layers": [i for i, kind in kinds if kind == "linear_attention"],
            "full_attn_layers": [i for i, kind in kinds if kind == "full_attention"],
            "num_heads": hparams["linear_num_heads"], "head_dim": hparams["linear_head_dim"],
            "short_conv_kernel_size": hparams["linear_conv_kernel_dim"]}
        hparams["first_k_dense_replace"] = hparams["mlp_layer_types"].index("sparse")
        hparams["moe_router_activation_func"] = "sigmoid"
        hparams["rope_theta"] = 10000.0
    return hparams


NAMES = ("llama_rope3", "gemma", "phi3_longrope", "qwen2", "smollm3", "deepseek_v2", "deepseek_v2_lite", "deepseek_v3",
         "kimi_linear_even", "qwen2_moe_squeezed")
for name in sys.argv[3:] or NAMES:
    source = HERE / "../golden/families" / name.removesuffix("_squeezed")
    hparams = as_released(name, ModelBase.load_hparams(source, False))
    cls = conversion.get_model_class(hparams["architectures"][0])
    cls.set_vocab = lambda self: self._set_vocab_none()
    if name.endswith("_squeezed"):  # as the converter did until 2024-08: dimensions of 1 are left out
        add = gguf.GGUFWriter.add_tensor
        gguf.GGUFWriter.add_tensor = lambda self, name, data, **k: add(self, name, data.squeeze(), **k)
    with torch.inference_mode():
        cls(source, gguf.LlamaFileType.MOSTLY_BF16, pathlib.Path(sys.argv[2]) / f"{name}.gguf", eager=True,
            hparams=hparams).write()
