#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ten more shapes of each dtype, in the form of the golden codecs: inputs, the payloads that the
format's reference makes of them, the values that it decodes.

Made with cortiq-cli 0.5.100 (tests/interop/test_reference.py --build makes it):
    python tests/oracle/codec_shapes.py CORTIQ build/dev/caisson tests/golden/cmf/shapes

The reference has no encoder of f32, bf16 and vbit: those payloads are ours, which it decodes.
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))
from caisson_cmf import Model, hash64  # noqa: E402

ANY = [(4, 17), (5, 7), (3, 34), (9, 11), (1, 100), (31, 2), (4, 50), (13, 13), (63, 3), (2, 95)]
GROUPS = [(4, 32), (9, 32), (2, 64), (3, 64), (1, 128), (2, 96), (11, 32), (1, 160), (2, 128), (1, 192)]
# dtype: what the reference calls it (None: ours), shapes, parameters of the cases
TYPES = {
    "f32": (None, ANY, {}), "f16": ("f16", ANY, {}), "bf16": (None, ANY, {}),
    "q8_row": ("q8", ANY, {}), "q8_2f": ("q8_2f", ANY, {}), "q4_block": ("q4", ANY, {}),
    "q4_tiled": ("q4t", GROUPS, {}), "q4tp": ("q4tp", GROUPS, {"rung_search": True}),
    "q2tp": ("q2tp", GROUPS, {"rung_search": True}), "vbit": (None, GROUPS, {"mean_bits": 4.25}),
    "vbit_ro": ("vbit", GROUPS, {"mean_bits": 4.25}), "q1": ("q1", GROUPS, {}),
    "q1s": ("q1s", GROUPS, {"keep": 0.01}), "q1t": ("q1t", GROUPS, {"outlier_fraction": 0.0}),
}
NAME = "model.layers.%d.mlp.up_proj.weight"
CONFIG = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 10,
          "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 32, "head_dim": 32,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-6}


def safetensors(path, arrays, metadata):
    header, body = {"__metadata__": metadata}, b""
    for name, a in arrays.items():
        header[name] = {"dtype": "U8" if a.dtype == np.uint8 else "F32", "shape": list(a.shape),
                        "data_offsets": [len(body), len(body) + a.nbytes]}
        body += a.tobytes()
        body += b"\0" * (-len(body) % 4)
    text = json.dumps(header, sort_keys=True).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def call(*argv):
    subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, RUST_LOG="error"))


def make(dtype, cortiq, tool, folder, target):
    theirs, shapes, params = TYPES[dtype]
    rng = np.random.default_rng(1 + list(TYPES).index(dtype))
    inputs = [(rng.standard_normal(s) * np.exp2(rng.integers(-3, 3, (s[0], 1)))).astype(np.float32)
              for s in shapes]
    source = os.path.join(folder, dtype)
    os.mkdir(source)
    with open(os.path.join(source, "config.json"), "w") as f:
        json.dump(CONFIG, f)
    safetensors(os.path.join(source, "model.safetensors"),
                {NAME % i: x for i, x in enumerate(inputs)}, {})
    path = os.path.join(folder, dtype + ".cmf")
    if theirs is not None:
        call(cortiq, "convert", "--model", source, "--quant", theirs, "--output", path)
    else:
        exact = os.path.join(folder, "exact.cmf")
        call(cortiq, "convert", "--model", source, "--quant", "f16", "--output", exact)
        call(tool, "quantize", exact, "-o", path, "--quant", dtype, "--encoder", "reference")
        inputs = [m.astype(np.float32) for m in
                  (Model(exact).tensors[NAME % i].values() for i in range(len(shapes)))]
    arrays, metadata = {}, {"cases": json.dumps(["shape%d" % i for i in range(len(shapes))])}
    model = Model(path)
    for i, shape in enumerate(shapes):
        out, case = os.path.join(folder, "out"), "shape%d" % i
        call(cortiq, "dequant", path, "--name", NAME % i, "--out", out)
        tensor = model.tensors[NAME % i]
        assert (tensor.dtype, tuple(tensor.shape)) == (dtype, shape), (tensor.dtype, tensor.shape)
        payload = np.array(tensor.payload())
        arrays.update({case + ".input": inputs[i], case + ".encoded": payload,
                       case + ".decoded": np.fromfile(out, "<f4").reshape(shape)})
        metadata.update({case + ".shape": json.dumps(shape), case + ".desc": "Gaussian, rows of 2^k",
                         case + ".params": json.dumps(params),
                         case + ".hash64": "%016x" % hash64(payload)})
    safetensors(os.path.join(target, dtype + ".safetensors"), arrays, metadata)


def main():
    cortiq, tool, target = sys.argv[1:]
    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for dtype in TYPES:
            make(dtype, cortiq, tool, folder, target)


if __name__ == "__main__":
    main()
