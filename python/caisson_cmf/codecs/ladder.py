# SPDX-License-Identifier: Apache-2.0
"""q4tp and q2tp: the scale of a group is a 5-bit rung on a ladder of its row (specification 3.2).

    [quants][rows x (f16 lo, f16 step)][rows x ceil(5 x gpr / 8) bytes of codes]

gpr = cols / 32. The code of group g is 5 bits, lowest first, at bit 5g of the row's code bytes.
The ladder is t[0] = exp2(lo), t[c] = t[c-1] * exp2(step): a chain of float32 products.

    q4tp  quants as q4_tiled, 16 bytes a group, w = (nib - 8) * t[code]
    q2tp  8 bytes a group, element k = bits 2(k mod 4) of byte k / 4, w = (quant - 1.5) * scale,
          scale = 0 for code 0, else t[code - 1]
"""
from __future__ import annotations

import numpy as np

from .base import GROUP, f16, grouped_matrix, nibbles

RUNGS = 32
CODE_BITS = 5


def q4tp_nbytes(shape):
    return _nbytes(shape, 16)


def q2tp_nbytes(shape):
    return _nbytes(shape, 8)


def q4tp_decode(payload, shape):
    packed, ladders, codes = _parts(payload, shape, 16)
    scale = np.take_along_axis(ladders, codes, axis=1).reshape(-1)
    return (nibbles(packed) * scale[:, None]).reshape(-1)


def q2tp_decode(payload, shape):
    packed, ladders, codes = _parts(payload, shape, 8)
    rungs = np.zeros_like(ladders)
    rungs[:, 1:] = ladders[:, :-1]
    scale = np.take_along_axis(rungs, codes, axis=1).reshape(-1)
    quants = np.empty((packed.shape[0], GROUP), dtype=np.float32)
    for k in range(4):
        quants[:, k::4] = packed >> (2 * k) & 3
    quants -= np.float32(1.5)
    return (quants * scale[:, None]).reshape(-1)


def q4tp_rungs(payload, shape):
    return _parts(payload, shape, 16)[1]


def q2tp_rungs(payload, shape):
    return _parts(payload, shape, 8)[1][:, :-1]


def _nbytes(shape, group_bytes):
    rows, _, gpr = grouped_matrix(shape)
    return rows * (gpr * group_bytes + 4 + _code_bytes(gpr))


def _code_bytes(gpr):
    return -(-CODE_BITS * gpr // 8)


def _parts(payload, shape, group_bytes):
    """quants uint8 [rows * gpr][group_bytes], ladders f32 [rows][32], codes [rows][gpr]"""
    rows, _, gpr = grouped_matrix(shape)
    params = rows * gpr * group_bytes
    quants = payload[:params].reshape(rows * gpr, group_bytes)
    lo, step = f16(payload, params, 2 * rows).reshape(rows, 2).T
    packed = payload[params + 4 * rows :].reshape(rows, _code_bytes(gpr))
    bits = np.unpackbits(packed, axis=1, bitorder="little")[:, : CODE_BITS * gpr]
    weights = (1 << np.arange(CODE_BITS)).astype(np.int64)
    codes = bits.reshape(rows, gpr, CODE_BITS).astype(np.int64) @ weights
    return quants, ladder(lo, step), codes


def ladder(lo, step):
    """f32 [rows] twice -> f32 [rows][32]"""
    rungs = np.empty((lo.size, RUNGS), dtype=np.float32)
    rungs[:, 0] = exp2f(lo)
    ratio = exp2f(step)
    for c in range(1, RUNGS):
        rungs[:, c] = rungs[:, c - 1] * ratio
    return rungs


# 2^x for |r| <= 1/64: 1 + r (C[2] + r (C[1] + r C[0])), the minimax polynomial that float32 exp2 of
# the common C libraries use. Rounding the exact power instead gives another last bit for 42 of the
# 65,536 halves, so the steps are part of the format (`tests/python/test_codecs.py`).
EXP2_STEPS = 32
EXP2_C = tuple(float.fromhex(c) for c in ("0x1.c6af84b912394p-5", "0x1.ebfce50fac4f3p-3",
                                          "0x1.62e42ff0c52d6p-1"))
EXP2_TABLE = np.array([2.0 ** (i / EXP2_STEPS) for i in range(EXP2_STEPS)])


def exp2f(x):
    """float32 exp2 as the format's ladders need it, equal on every machine."""
    wide = np.clip(x.astype(np.float64), -200.0, 200.0)  # both ends are beyond float32
    k = np.rint(wide * EXP2_STEPS)
    r = wide - k / EXP2_STEPS
    k = np.where(np.isnan(k), 0, k).astype(np.int64)
    y = (EXP2_C[0] * r + EXP2_C[1]) * (r * r) + (EXP2_C[2] * r + 1.0)
    return np.ldexp(y * EXP2_TABLE[k % EXP2_STEPS], k // EXP2_STEPS).astype(np.float32)
