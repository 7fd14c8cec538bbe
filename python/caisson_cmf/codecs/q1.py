# SPDX-License-Identifier: Apache-2.0
"""q1, q1s and q1t: one bit or one ternary digit an element, outliers beside (specification 3.2).

    q1   groups x [f16 s][4 bytes of signs]; bit k mod 8 of byte k / 8 set: +s, clear: -s
    q1s  q1's tiles, u32 count, count x {u32 flat index, f16 value}
    q1t  groups x [f16 s][7 bytes, five base-3 digits each], u32 row_ptr[rows + 1],
         entries {u16 col, f16 value}: those of row r are row_ptr[r] to row_ptr[r + 1]

A digit of 0 is 0, 1 is +s, 2 is -s. A value of the overlay replaces the tile's.
"""
from __future__ import annotations

import numpy as np

from .base import GROUP, Refused, elements, f16, grouped_matrix, n_groups, u32

TILE = 6  # bytes of a q1 group
TERNARY_TILE = 9
FLAT_ENTRY = np.dtype([("index", "<u4"), ("value", "<f2")])
ROW_ENTRY = np.dtype([("col", "<u2"), ("value", "<f2")])
MAX_COLS = 1 << 16


def q1_nbytes(shape):
    return TILE * n_groups(shape)


def q1_decode(payload, shape):
    tiles = payload.reshape(n_groups(shape), TILE)
    scale = _scales(tiles)[:, None]
    bits = np.unpackbits(tiles[:, 2:], axis=1, bitorder="little")
    return np.where(bits, scale, -scale).reshape(-1)[: elements(shape)]


def q1_numbers(payload, shape):
    return _scales(payload.reshape(n_groups(shape), TILE))


def _scales(tiles):
    return f16(tiles[:, :2].reshape(-1), 0, tiles.shape[0])


def q1s_numbers(payload, shape):
    tiles = q1_nbytes(shape)
    entries = payload[tiles + 4 :].view(FLAT_ENTRY)
    return np.concatenate([q1_numbers(payload[:tiles], shape), entries["value"]])


def q1s_check(payload, shape):
    grouped_matrix(shape)
    tiles = q1_nbytes(shape)
    if payload.size < tiles + 4:
        raise Refused("payload ends before the count of outliers", want=tiles + 4,
                      got=payload.size)
    count = int(u32(payload, tiles, 1)[0])
    want = tiles + 4 + count * FLAT_ENTRY.itemsize
    if payload.size != want:
        raise Refused("payload bytes differ from what %d outliers ask for" % count, want=want,
                      got=payload.size)
    index = payload[tiles + 4 :].view(FLAT_ENTRY)["index"]
    if index.size and index.max() >= elements(shape):
        raise Refused("index of an outlier is outside of the tensor",
                      want="< %d" % elements(shape), got=int(index.max()))
    _need_rising(index.astype(np.int64), "indices of outliers do not rise")


def q1s_decode(payload, shape):
    tiles = q1_nbytes(shape)
    values = q1_decode(payload[:tiles], shape)
    entries = payload[tiles + 4 :].view(FLAT_ENTRY)
    values[entries["index"]] = entries["value"].astype(np.float32)
    return values


def _need_rising(index, what):
    backwards = np.flatnonzero(np.diff(index) <= 0)
    if backwards.size:
        at = int(backwards[0])
        raise Refused(what, want="> %d" % index[at], got=int(index[at + 1]))


def q1t_check(payload, shape):
    rows, cols, gpr = grouped_matrix(shape)
    if cols > MAX_COLS:
        raise Refused("columns do not fit an overlay's u16", want="<= %d" % MAX_COLS, got=cols)
    head = rows * gpr * TERNARY_TILE + 4 * (rows + 1)
    if payload.size < head:
        raise Refused("payload ends before the row pointers do", want=head, got=payload.size)
    row_ptr = u32(payload, head - 4 * (rows + 1), rows + 1)
    if row_ptr[0] != 0:
        raise Refused("first row pointer is not 0", want=0, got=int(row_ptr[0]))
    backwards = np.flatnonzero(np.diff(row_ptr) < 0)
    if backwards.size:
        row = int(backwards[0])
        raise Refused("row pointers of row %d run backwards" % row,
                      want=">= %d" % row_ptr[row], got=int(row_ptr[row + 1]))
    want = head + int(row_ptr[-1]) * ROW_ENTRY.itemsize
    if payload.size != want:
        raise Refused("payload bytes differ from what %d outliers ask for" % row_ptr[-1],
                      want=want, got=payload.size)
    col = payload[head:].view(ROW_ENTRY)["col"]
    if col.size and col.max() >= cols:
        raise Refused("column of an outlier is outside of its row", want="< %d" % cols,
                      got=int(col.max()))
    row = np.repeat(np.arange(rows), np.diff(row_ptr))
    _need_rising(row * cols + col, "columns of a row's outliers do not rise")


def q1t_decode(payload, shape):
    rows, cols, _ = grouped_matrix(shape)
    tiles, tail = _q1t_parts(payload, shape)
    scale = _scales(tiles)
    powers = np.array([1, 3, 9, 27, 81], dtype=np.uint8)
    digits = (tiles[:, 2:, None] // powers % 3).reshape(-1, 35)[:, :GROUP]
    choices = np.stack([np.zeros_like(scale), scale, -scale], axis=1)
    values = np.take_along_axis(choices, digits.astype(np.int64), axis=1).reshape(-1)
    row_ptr = u32(tail, 0, rows + 1)
    entries = tail[4 * (rows + 1) :].view(ROW_ENTRY)
    row = np.repeat(np.arange(rows), np.diff(row_ptr))
    values[row * cols + entries["col"]] = entries["value"].astype(np.float32)
    return values


def q1t_numbers(payload, shape):
    tiles, tail = _q1t_parts(payload, shape)
    return np.concatenate([_scales(tiles), tail[4 * (shape[0] + 1) :].view(ROW_ENTRY)["value"]])


def _q1t_parts(payload, shape):
    """The tiles [groups][9], then row pointers and entries."""
    rows, _, gpr = grouped_matrix(shape)
    end = rows * gpr * TERNARY_TILE
    return payload[:end].reshape(rows * gpr, TERNARY_TILE), payload[end:]
