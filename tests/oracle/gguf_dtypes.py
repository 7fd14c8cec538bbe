#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden values of the block dtypes of GGUF and of the eight-bit floats.

Made with gguf 0.19.0, torch 2.15.0, numpy 2.4.6:
    python tests/oracle/gguf_dtypes.py tests/golden/quant
Each file: u32 n_bytes, u32 n_values, the payload, the float32 values that gguf.dequantize (torch
for f8) gives for it. Payloads are random bytes with finite scales: among them zero, subnormal,
negative and the largest f16.
"""
import struct
import sys

import gguf
import numpy as np
import torch

T = gguf.GGMLQuantizationType
# name -> type, offsets of the f16 scales inside a block
DTYPES = {
    "q4_0": (T.Q4_0, [0]), "q4_1": (T.Q4_1, [0, 2]), "q5_0": (T.Q5_0, [0]), "q5_1": (T.Q5_1, [0, 2]),
    "q8_0": (T.Q8_0, [0]), "q2_k": (T.Q2_K, [80, 82]), "q3_k": (T.Q3_K, [108]),
    "q4_k": (T.Q4_K, [0, 2]), "q5_k": (T.Q5_K, [0, 2]), "q6_k": (T.Q6_K, [208]),
    "iq4_nl": (T.IQ4_NL, [0]), "iq4_xs": (T.IQ4_XS, [0]), "mxfp4": (T.MXFP4, []),
}
EDGE = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x2E66, 0xAE66, 0x3C00]


def write(path, payload, values):
    with open(path, "wb") as f:
        f.write(struct.pack("<II", len(payload), len(values)) + payload + values.astype("<f4").tobytes())


def main(out):
    rng = np.random.default_rng(7)
    for name, (t, scales) in DTYPES.items():
        block, nbytes = gguf.GGML_QUANT_SIZES[t]
        n = 8 if block == 32 else 3
        b = rng.integers(0, 256, size=(n, nbytes), dtype=np.uint8)
        for i in range(n):
            for k, off in enumerate(scales):
                h = EDGE[(i + 3 * k) % len(EDGE)] if i < len(EDGE) - 2 else int(rng.integers(0, 0x7BFF))
                b[i, off:off + 2] = np.frombuffer(struct.pack("<H", h), dtype=np.uint8)
        if name == "mxfp4":
            b[:6, 0] = [0, 1, 2, 127, 250, 120]
            b[6:, 0] = [100, 135]
        values = gguf.dequantize(b, t).ravel()
        assert np.isfinite(values).all() and len(values) == n * block, name
        write(f"{out}/gguf_{name}.bin", b.tobytes(), values)
    for name, t in (("f8_e4m3", torch.float8_e4m3fn), ("f8_e5m2", torch.float8_e5m2)):
        b = torch.arange(256, dtype=torch.uint8)
        write(f"{out}/{name}.bin", bytes(b.tolist()), b.view(t).float().numpy())


main(sys.argv[1])
