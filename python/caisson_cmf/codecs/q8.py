# SPDX-License-Identifier: Apache-2.0
"""q8_row and q8_2f: bytes with one scale a row, and one more a column (specification 3.2).

    q8_row  [i8: rows x cols][f16: rows]             w = q * row
    q8_2f   [i8: rows x cols][f16: rows][f16: cols]  w = (q * row) * col, in this order
"""
from __future__ import annotations

import numpy as np

from .base import elements, f16, matrix


def _first(shape):
    return shape[0] if shape else 1


def q8_row_nbytes(shape):
    return elements(shape) + 2 * _first(shape)


def q8_row_decode(payload, shape):
    rows, cols = matrix(shape)
    scale = f16(payload, rows * cols, rows)
    return (_quants(payload, rows, cols) * scale[:, None]).reshape(-1)


def q8_2f_nbytes(shape):
    n, rows = elements(shape), _first(shape)
    return n + 2 * rows + 2 * (n // max(rows, 1))


def q8_2f_decode(payload, shape):
    rows, cols = matrix(shape)
    row = f16(payload, rows * cols, rows)
    col = f16(payload, rows * cols + 2 * rows, cols if rows else 0)
    values = _quants(payload, rows, cols)
    values *= row[:, None]
    values *= col
    return values.reshape(-1)


def numbers(payload, shape):
    """All that is no quant: the fields of rows and columns."""
    n = elements(shape)
    return f16(payload, n, (payload.size - n) // 2)


def _quants(payload, rows, cols):
    return payload[: rows * cols].view(np.int8).reshape(rows, cols).astype(np.float32)
