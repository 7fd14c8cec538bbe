# SPDX-License-Identifier: Apache-2.0
"""f32, f16, bf16 and u8: one number an element (specification 3.1, 3.2)."""
from __future__ import annotations

import numpy as np

from .base import elements, need


def f32_nbytes(shape):
    return 4 * elements(shape)


def f32_decode(payload, shape):
    return payload.view("<f4").astype(np.float32)


def half_nbytes(shape):
    return 2 * elements(shape)


def f16_decode(payload, shape):
    return payload.view("<f2").astype(np.float32)


def bf16_decode(payload, shape):
    return (payload.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def u8_decode(payload, shape):
    """Bytes of an embedded file as a rule (`te.config_json`); the format has no size rule."""
    need(payload, elements(shape), "payload bytes differ from the number of elements")
    return payload.astype(np.float32)
