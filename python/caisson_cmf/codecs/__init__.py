# SPDX-License-Identifier: Apache-2.0
"""Every dtype of the format in one table; one module a family, one function a dtype."""
from __future__ import annotations

import numpy as np

from . import ladder, plain, q1, q4, q8, vbit
from .base import Dtype, Refused, Shape, no_check, no_rule

TABLE = {row.id: row for row in (
    Dtype(0, "f32", plain.f32_nbytes, no_check, plain.f32_decode, plain.f32_decode),
    Dtype(1, "f16", plain.half_nbytes, no_check, plain.f16_decode, plain.f16_decode),
    Dtype(2, "bf16", plain.half_nbytes, no_check, plain.bf16_decode, plain.bf16_decode),
    Dtype(3, "q8_row", q8.q8_row_nbytes, no_check, q8.q8_row_decode, q8.numbers),
    Dtype(4, "q4_block", q4.nbytes, no_check, q4.q4_block_decode, q4.q4_block_scales),
    Dtype(5, "mix8_4", no_rule, no_check, None),  # reserved: no layout is defined
    Dtype(6, "u8", no_rule, no_check, plain.u8_decode),
    Dtype(7, "q4_col", no_rule, no_check, None),  # reserved
    Dtype(8, "vbit", no_rule, vbit.vbit_check, vbit.vbit_decode, vbit.scales),
    Dtype(9, "q8_2f", q8.q8_2f_nbytes, no_check, q8.q8_2f_decode, q8.numbers),
    Dtype(10, "vbit_ro", no_rule, vbit.vbit_ro_check, vbit.vbit_ro_decode, vbit.scales),
    Dtype(11, "q4_tiled", q4.nbytes, no_check, q4.q4_tiled_decode, q4.q4_tiled_scales),
    Dtype(12, "q1", q1.q1_nbytes, no_check, q1.q1_decode, q1.q1_numbers),
    Dtype(13, "q1s", no_rule, q1.q1s_check, q1.q1s_decode, q1.q1s_numbers),
    Dtype(14, "q1t", no_rule, q1.q1t_check, q1.q1t_decode, q1.q1t_numbers),
    Dtype(15, "q4tp", ladder.q4tp_nbytes, no_check, ladder.q4tp_decode, ladder.q4tp_rungs),
    Dtype(16, "q2tp", ladder.q2tp_nbytes, no_check, ladder.q2tp_decode, ladder.q2tp_rungs),
)}


def check_size(dtype: int, nbytes: int, shape: Shape) -> None:
    """The rule of shape x dtype, where there is one; raises Refused."""
    row = TABLE[dtype]
    want = row.nbytes(shape)
    if want is not None and want != nbytes:
        raise Refused("payload bytes differ from shape x dtype (%s)" % row.name, want=want,
                      got=nbytes)


def check(dtype: int, payload: np.ndarray, shape: Shape) -> None:
    """The size, then whatever the payload says about itself; raises Refused."""
    check_size(dtype, payload.size, shape)
    TABLE[dtype].check(payload, shape)


def decode(dtype: int, payload: np.ndarray, shape: Shape) -> np.ndarray:
    """float32 array of `shape`; check() has passed. Refused for what cannot be decoded."""
    row = TABLE[dtype]
    if row.decode is None:
        raise Refused("dtype %d (%s) is reserved" % (row.id, row.name))
    with np.errstate(all="ignore"):  # scales may be infinite or NaN: so are the values then
        return row.decode(payload, shape).reshape(shape)


def finite(dtype: int, payload: np.ndarray, shape: Shape) -> bool:
    """Whether the numbers that values are made of are finite; check() has passed."""
    numbers = TABLE[dtype].numbers
    with np.errstate(all="ignore"):
        return numbers is None or bool(np.isfinite(numbers(payload, shape)).all())


__all__ = ["TABLE", "Dtype", "Refused", "check", "check_size", "decode", "finite"]
