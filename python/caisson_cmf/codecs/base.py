# SPDX-License-Identifier: Apache-2.0
"""What a dtype is, and the pieces that several of them share.

Payloads come in as 1-D arrays of uint8 and go out as 1-D arrays of float32, row-major. A group is
32 consecutive elements of that flat order; where cols % 32 == 0 no group crosses a row.
"""
from __future__ import annotations

from typing import Callable, NamedTuple, Optional, Tuple

import numpy as np

GROUP = 32
Shape = Tuple[int, ...]


class Refused(Exception):
    """A shape or payload that the dtype does not allow."""

    def __init__(self, what: str, want=None, got=None):
        super().__init__(what)
        self.what, self.want, self.got = what, want, got


class Dtype(NamedTuple):
    """One row of codecs.TABLE.

    nbytes  shape -> exact payload size, or None where only the payload tells (or nothing does)
    check   (payload, shape) -> None; everything inside a payload that a decoder relies on
    decode  (payload, shape) -> float32 values; the payload has passed nbytes and check
    numbers (payload, shape) -> the floating-point numbers of the payload: scales, or values that
            are stored as they are; None where it has none
    """

    id: int
    name: str
    nbytes: Callable[[Shape], Optional[int]]
    check: Callable[[np.ndarray, Shape], None]
    decode: Optional[Callable[[np.ndarray, Shape], np.ndarray]]
    numbers: Optional[Callable[[np.ndarray, Shape], np.ndarray]] = None


def no_rule(shape: Shape) -> None:
    return None


def no_check(payload: np.ndarray, shape: Shape) -> None:
    return None


def elements(shape: Shape) -> int:
    n = 1
    for dim in shape:
        n *= dim
    return n


def matrix(shape: Shape) -> Tuple[int, int]:
    """(rows, cols), or Refused."""
    if len(shape) != 2:
        raise Refused("dtype needs a shape of [rows, cols]", want=2, got=len(shape))
    return shape


def grouped_matrix(shape: Shape) -> Tuple[int, int, int]:
    """(rows, cols, groups a row), or Refused."""
    rows, cols = matrix(shape)
    if cols % GROUP:
        raise Refused("dtype needs cols %% %d == 0" % GROUP, want=0, got=cols % GROUP)
    return rows, cols, cols // GROUP


def n_groups(shape: Shape) -> int:
    return -(-elements(shape) // GROUP)


def f16(payload: np.ndarray, start: int, count: int) -> np.ndarray:
    """float32 values of `count` little-endian halves at byte `start`."""
    return payload[start : start + 2 * count].view("<f2").astype(np.float32)


def u32(payload: np.ndarray, start: int, count: int) -> np.ndarray:
    return payload[start : start + 4 * count].view("<u4").astype(np.int64)


def nibbles(packed: np.ndarray) -> np.ndarray:
    """uint8 [..., n] -> int8 [..., 2n] of -8..7: element 2k is the low half of byte k."""
    values = np.empty(packed.shape[:-1] + (2 * packed.shape[-1],), dtype=np.int8)
    values[..., 0::2] = packed & 15
    values[..., 1::2] = packed >> 4
    values -= 8
    return values


def need(payload: np.ndarray, nbytes: int, what: str) -> None:
    if payload.size != nbytes:
        raise Refused(what, want=nbytes, got=payload.size)
