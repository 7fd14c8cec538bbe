#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vector-quantised matrices, their weights and their products, from warp facts 4, 6 and 10 in numpy.

Made with numpy 2.4.6:
    python tests/oracle/vq_products.py tests/golden/quant
Each file: u32 stages, entries, is_packed, rows, cols, block, n; binary16 books [stage][entry][8];
binary16 scales [rows]; the index block; zeros up to a multiple of 4; then float32: x [n][cols],
weights [rows][cols], and the products [n][rows] by f32 tables and by int8 tables.

A fused step of f32 is a step in float64 that is rounded once more: its product is exact, and a
second rounding that shows would need 29 bits in a row.
"""
import struct
import sys

import numpy as np

F = np.float32
SPAN = 32
# name -> stages, entries, is_packed, rows, cols, block
CASES = {
    "vq3r": (3, 256, 0, 72, 136, 64),
    "vq2r": (2, 256, 0, 130, 72, 64),
    "vq4p": (4, 64, 1, 72, 320, 64),
    "vq6_rows": (6, 16, 0, 5, 264, 0),
}


def index_block(idx, is_packed, block):
    rows, nv, stages = idx.shape
    unit = block or 1
    padded = np.zeros((-(-rows // unit) * unit, nv, stages), np.uint32)
    padded[:rows] = idx
    blocks = padded.reshape(-1, unit, nv, stages).transpose(0, 2, 1, 3)
    if not is_packed:
        return blocks.astype(np.uint8).tobytes()
    w = (blocks << (6 * np.arange(4, dtype=np.uint32))).sum(axis=-1)
    return np.stack([w & 255, w >> 8 & 255, w >> 16], axis=-1).astype(np.uint8).tobytes()


def tables(books, x):
    """[vector][stage][entry]"""
    v = x.reshape(-1, 1, 1, 8)
    t = (books[None, ..., 0] * v[..., 0]).astype(F)
    for d in range(1, 8):
        t = (books[None, ..., d].astype(np.float64) * v[..., d] + t).astype(F)
    return t


def looked_up(t, idx):
    """[row][vector][stage]"""
    v, s = np.arange(t.shape[0])[:, None], np.arange(t.shape[1])[None, :]
    return t[v, s, idx]


def product_f32(books, idx, scale, x):
    terms = looked_up(tables(books, x), idx)
    acc = np.zeros(idx.shape[0], F)
    for v in range(idx.shape[1]):
        total = terms[:, v, 0]
        for s in range(1, idx.shape[2]):
            total = total + terms[:, v, s]
        acc = acc + total
    return scale * acc


def product_i8(books, idx, scale, x):
    t = tables(books, x)
    acc = np.zeros(idx.shape[0], F)
    for v0 in range(0, idx.shape[1], SPAN):
        part = t[v0:v0 + SPAN]
        most = np.abs(part).max()
        q = np.clip(np.rint(part * (F(127) / most)), -127, 127).astype(np.int64)
        total = looked_up(q, idx[:, v0:v0 + SPAN]).sum(axis=(1, 2))
        acc = acc + (most / F(127)) * total.astype(F)
    return scale * acc


def main(out):
    rng = np.random.default_rng(5)
    n = 3
    for name, (stages, entries, is_packed, rows, cols, block) in CASES.items():
        half = (rng.normal(size=(stages, entries, 8)) / (1 + np.arange(stages))[:, None, None]).astype("<f2")
        scale_half = rng.uniform(0.01, 2, rows).astype("<f2")
        idx = rng.integers(0, entries, (rows, cols // 8, stages))
        x = rng.normal(size=(n, cols)).astype(F)
        books, scale = half.astype(F), scale_half.astype(F)
        total = books[0][idx[..., 0]]
        for s in range(1, stages):
            total = total + books[s][idx[..., s]]
        weights = scale[:, None] * total.reshape(rows, cols)
        head = struct.pack("<7I", stages, entries, is_packed, rows, cols, block, n)
        body = half.tobytes() + scale_half.tobytes() + index_block(idx, is_packed, block)
        with open(f"{out}/warp_{name}.bin", "wb") as f:
            f.write(head + body + b"\0" * (-len(body) % 4) + x.tobytes() + weights.astype("<f4").tobytes())
            for product in (product_f32, product_i8):
                y = np.stack([product(books, idx, scale, row) for row in x])
                assert y.dtype == F
                assert np.abs(y - x.astype(np.float64) @ weights.T.astype(np.float64)).max() < (
                    1e-4 if product is product_f32 else 2.0), name
                f.write(y.astype("<f4").tobytes())


main(sys.argv[1])
