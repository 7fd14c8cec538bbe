#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Relative errors of the method of WARP's converter (warp facts 9) in numpy, on a matrix that the test
makes too.

Made with numpy 2.4.6:
    python tests/oracle/vq_encode.py > tests/golden/convert/vq_errors.json
"""
import json

import numpy as np

ROWS, COLS, ITERATIONS = 128, 256, 10
CODINGS = {"vq3r": (3, 256), "vq2r": (2, 256), "vq4p": (4, 64)}


def weights():
    """Sums of four draws of a 32-bit generator, rows of different loudness."""
    x, out = 1, np.empty(ROWS * COLS * 4)
    for i in range(out.size):
        x = (x * 1664525 + 1013904223) % 2**32
        out[i] = (x >> 8) / 2**24 - 0.5
    w = out.reshape(ROWS, COLS, 4).sum(-1)
    return (w * (1 + np.arange(ROWS) % 7)[:, None] / 64).astype(np.float32)


def nearest(x, c):
    return ((c * c).sum(1) - 2 * (x @ c.T)).argmin(1)


def encode(w, stages, entries, rng):
    scale = np.maximum(np.abs(w).max(1, keepdims=True), np.float32(1e-8))
    left = (w / scale).reshape(-1, 8)
    sample, books = left.copy(), []
    for _ in range(stages):
        c = sample[rng.permutation(len(sample))[:entries]].copy()
        for _ in range(ITERATIONS):
            index = nearest(sample, c)
            for k in range(entries):
                if (index == k).any():
                    c[k] = sample[index == k].mean(0)
        books.append(c)
        sample = sample - c[nearest(sample, c)]
    total = np.zeros_like(left)
    for c in books:  # against the centroids before they are rounded
        index = nearest(left, c)
        left = left - c[index]
        total = total + c.astype(np.float16).astype(np.float32)[index]
    decoded = total.reshape(w.shape) * scale.astype(np.float16).astype(np.float32)
    return float(np.linalg.norm(decoded - w) / np.linalg.norm(w))


def main():
    w = weights()
    print(json.dumps({name: sorted(encode(w, s, e, np.random.default_rng(seed)) for seed in range(5))
                      for name, (s, e) in CODINGS.items()}, indent=1))


if __name__ == "__main__":
    main()
