#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden values of the dtypes of WARP's trunk, from warp facts 3 and numpy alone.

Made with numpy 2.4.6:
    python tests/oracle/warp_dtypes.py tests/golden/quant
Each file: u32 rows, cols, n_bytes, then float32 x [rows][cols], the payload that x is encoded to,
the float32 values of that payload, n_bytes random bytes with finite scales, their float32 values;
each payload is followed by zeros up to a multiple of 4.
"""
import struct
import sys

import numpy as np

GROUP = 128
# name -> (bits, divisor of the largest magnitude, what is added to a code)
DTYPES = {"q8g": (8, 127, 0), "q4g": (4, 7, 8), "q3g": (3, 3, 4)}


def row_of_codes(u, bits):
    """Codes u (unsigned) of a padded row, the first in the lowest bits; q3g adds a byte."""
    stream = ((u[:, None] >> np.arange(bits)) & 1).astype(np.uint8).ravel()
    return np.packbits(stream, bitorder="little").tobytes() + (b"\0" if bits == 3 else b"")


def codes_of_row(row, bits, n):
    stream = np.unpackbits(np.frombuffer(row, np.uint8), bitorder="little")[:n * bits]
    return (stream.reshape(n, bits).astype(np.int64) << np.arange(bits)).sum(axis=1)


def encode(x, bits, divisor, bias):
    rows, cols = x.shape
    padded = np.zeros((rows, -(-cols // GROUP) * GROUP), np.float32)
    padded[:, :cols] = x
    groups = padded.reshape(rows, -1, GROUP)
    most = np.maximum(np.abs(groups).max(axis=2), np.float32(1e-8))
    scale = (most / np.float32(divisor)).astype(np.float32)
    q = np.rint(groups / scale[:, :, None]).astype(np.int64).reshape(rows, -1)
    payload = b"".join(row_of_codes((r + bias) & ((1 << bits) - 1), bits) for r in q)
    return payload + scale.astype("<f2").tobytes()


def decode(payload, rows, cols, bits, bias):
    n_groups = -(-cols // GROUP)
    n = n_groups * GROUP
    stride = (3 * n + 7) // 8 + 1 if bits == 3 else n * bits // 8
    scale = np.frombuffer(payload, "<f2", offset=rows * stride).reshape(rows, n_groups)
    out = np.empty((rows, n), np.float32)
    for r in range(rows):
        u = codes_of_row(payload[r * stride:(r + 1) * stride], bits, n)
        q = (u.astype(np.uint8).view(np.int8) if bits == 8 else u - bias).astype(np.float32)
        out[r] = q * np.repeat(scale[r].astype(np.float32), GROUP)
    return out[:, :cols]


def main(out):
    rng = np.random.default_rng(11)
    rows, cols = 5, 136 + 128
    for name, (bits, divisor, bias) in DTYPES.items():
        x = rng.normal(size=(rows, cols)).astype(np.float32)
        x[0, :128] = 0
        x[1, :128] *= np.float32(1e-6)                     # a subnormal scale
        x[1, 128:256] *= np.float32(1e-9)                  # below the least magnitude
        x[2, :128] = np.arange(128) - 64                   # ties against a scale of 0.5 or 1
        x[2, 0] = divisor * np.float32(0.5) * 2
        x[3, 128:256] = divisor * (rng.integers(-9, 9, 128) + 0.5) * np.float32(2.0**-26)
        x[3, 128] = divisor * np.float32(37 * 2.0**-25)    # a scale half between two subnormals
        x[4] *= 1000
        payload = encode(x, bits, divisor, bias)
        n_scales = rows * (-(-cols // GROUP))
        noise = rng.integers(0, 256, len(payload) - 2 * n_scales, dtype=np.uint8).tobytes()
        half = rng.integers(0, 0x7C00, n_scales) | rng.integers(0, 2, n_scales) << 15
        half[:4] = [0, 0x8000, 1, 0x83FF]
        noise += half.astype("<u2").tobytes()
        with open(f"{out}/warp_{name}.bin", "wb") as f:
            f.write(struct.pack("<III", rows, cols, len(payload)) + x.astype("<f4").tobytes())
            for p in (payload, noise):
                f.write(p + b"\0" * (-len(p) % 4) + decode(p, rows, cols, bits, bias).astype("<f4").tobytes())


main(sys.argv[1])
