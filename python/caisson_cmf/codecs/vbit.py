# SPDX-License-Identifier: Apache-2.0
"""vbit and vbit_ro: each row has its own width of 3, 4, 5, 6 or 8 bits (specification 3.2).

    vbit     [u8 width: rows][f16 scale: groups][packed rows]
    vbit_ro  [u8 width: rows][f16 scale: groups][u32 offset: rows + 1][packed rows]

A row is packed highest bit first and filled up to a whole byte. w = (u - L) * scale of the group,
L = 2^(width - 1) - 1. Offsets count from the first packed byte.
"""
from __future__ import annotations

import numpy as np

from .base import GROUP, Refused, f16, grouped_matrix, u32

WIDTHS = (3, 4, 5, 6, 8)
CHUNK_BITS = 1 << 23  # bits unpacked at a time; each takes a byte


def vbit_check(payload, shape):
    _check(payload, shape, has_offsets=False)


def vbit_ro_check(payload, shape):
    _check(payload, shape, has_offsets=True)


def vbit_decode(payload, shape):
    return _decode(payload, shape, has_offsets=False)


def vbit_ro_decode(payload, shape):
    return _decode(payload, shape, has_offsets=True)


def scales(payload, shape):
    rows, _, gpr = grouped_matrix(shape)
    return f16(payload, rows, rows * gpr)


def _head_bytes(rows, gpr, has_offsets):
    return rows + 2 * rows * gpr + (4 * (rows + 1) if has_offsets else 0)


def _row_ends(payload, rows, cols):
    """Running sum of the packed rows' bytes, [rows + 1], from 0."""
    row_bytes = (cols * payload[:rows].astype(np.int64) + 7) // 8
    return np.concatenate([[0], np.cumsum(row_bytes)])


def _check(payload, shape, has_offsets):
    rows, cols, gpr = grouped_matrix(shape)
    head = _head_bytes(rows, gpr, has_offsets)
    if payload.size < head:
        raise Refused("payload ends inside of widths, scales or offsets", want=head,
                      got=payload.size)
    wrong = np.flatnonzero(~np.isin(payload[:rows], WIDTHS))
    if wrong.size:
        raise Refused("width of row %d is not 3, 4, 5, 6 or 8" % wrong[0], want="3 4 5 6 8",
                      got=int(payload[wrong[0]]))
    ends = _row_ends(payload, rows, cols)
    if has_offsets:
        offsets = u32(payload, head - 4 * (rows + 1), rows + 1)
        wrong = np.flatnonzero(offsets != ends)
        if wrong.size:
            raise Refused("offset of row %d does not follow from the widths" % wrong[0],
                          want=int(ends[wrong[0]]), got=int(offsets[wrong[0]]))
    if payload.size != head + ends[-1]:
        raise Refused("payload bytes differ from what the widths ask for",
                      want=int(head + ends[-1]), got=payload.size)


def _decode(payload, shape, has_offsets):
    rows, cols, gpr = grouped_matrix(shape)
    head = _head_bytes(rows, gpr, has_offsets)
    widths = payload[:rows]
    scale = scales(payload, shape).reshape(rows, gpr)
    starts = head + _row_ends(payload, rows, cols)
    values = np.empty((rows, cols), dtype=np.float32)
    for width in WIDTHS:
        members = np.flatnonzero(widths == width)
        row_bytes = (cols * width + 7) // 8
        at_a_time = max(1, CHUNK_BITS // max(1, 8 * row_bytes))
        for i in range(0, members.size, at_a_time):
            chosen = members[i : i + at_a_time]
            packed = payload[starts[chosen][:, None] + np.arange(row_bytes)]
            values[chosen] = _unpack(packed, cols, width) - np.float32(2 ** (width - 1) - 1)
    values = values.reshape(rows, gpr, GROUP)
    values *= scale[:, :, None]
    return values.reshape(-1)


def _unpack(packed, cols, width):
    """uint8 [n][row_bytes] -> f32 [n][cols] of codes"""
    bits = np.unpackbits(packed, axis=1)[:, : cols * width].reshape(-1, cols, width)
    codes = np.zeros(bits.shape[:2], dtype=np.uint8)
    for i in range(width):
        codes = codes << 1 | bits[:, :, i]
    return codes.astype(np.float32)
