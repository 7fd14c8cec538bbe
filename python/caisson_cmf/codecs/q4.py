# SPDX-License-Identifier: Apache-2.0
"""q4_block and q4_tiled: 4 bits an element, one f16 scale a group (specification 3.2).

    q4_block  [16 bytes x groups][f16 x groups]    the last group is filled up
    q4_tiled  groups x [f16 scale][16 bytes]

Byte k of a group holds element 2k in its low half and 2k + 1 in its high half; w = (nib - 8) * s.
"""
from __future__ import annotations

from .base import elements, f16, n_groups, nibbles

TILE = 18  # bytes


def nbytes(shape):
    return TILE * n_groups(shape)


def q4_block_decode(payload, shape):
    groups = n_groups(shape)
    scale = q4_block_scales(payload, shape)
    return _scaled(payload[: 16 * groups].reshape(groups, 16), scale, shape)


def q4_tiled_decode(payload, shape):
    tiles = payload.reshape(n_groups(shape), TILE)
    return _scaled(tiles[:, 2:], q4_tiled_scales(payload, shape), shape)


def q4_block_scales(payload, shape):
    return f16(payload, 16 * n_groups(shape), n_groups(shape))


def q4_tiled_scales(payload, shape):
    tiles = payload.reshape(n_groups(shape), TILE)
    return tiles[:, :2].copy().view("<f2").astype("f4").reshape(-1)


def _scaled(packed, scale, shape):
    return (nibbles(packed) * scale[:, None]).reshape(-1)[: elements(shape)]
