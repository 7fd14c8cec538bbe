# SPDX-License-Identifier: Apache-2.0
"""hash64 of CMF (specification section 8): murmur3's fmix64 over little-endian 64-bit words.

    acc = XOR over words i of  fmix64(word_i) ^ (i * SALT mod 2^64)
    hash64 = fmix64(acc ^ length in bytes)

The last partial word is filled with zero bytes. An empty input gives 0. The salt is added after
the mixing, so the order of words does not change the result: swapped words are not seen, and two
equal words cancel. That is the definition; the digests (`digests.py`) see both.
"""
from __future__ import annotations

import numpy as np

SALT = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
MIX_1, MIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53
BLOCK_WORDS = 1 << 15  # 256 KiB: the temporaries of a block stay in the second cache


def fmix64(x):
    """Python int below 2^64, or an array of uint64 (which is overwritten)."""
    if isinstance(x, int):
        x ^= x >> 33
        x = x * MIX_1 & MASK
        x ^= x >> 33
        x = x * MIX_2 & MASK
        return x ^ x >> 33
    shift = np.uint64(33)
    x ^= x >> shift
    x *= np.uint64(MIX_1)
    x ^= x >> shift
    x *= np.uint64(MIX_2)
    x ^= x >> shift
    return x


def hash64(data) -> int:
    """hash64 of a bytes-like object or an array of uint8."""
    raw = np.frombuffer(data, dtype=np.uint8)
    n_words = raw.size // 8
    words = raw[: n_words * 8].view("<u8")
    salts = np.arange(min(n_words, BLOCK_WORDS), dtype=np.uint64) * np.uint64(SALT)
    acc = 0
    for start in range(0, n_words, BLOCK_WORDS):
        block = words[start : start + BLOCK_WORDS].astype(np.uint64)  # a copy, native order
        acc ^= int(np.bitwise_xor.reduce(fmix64(block)))
        first_salt = np.uint64(start * SALT & MASK)
        acc ^= int(np.bitwise_xor.reduce(salts[: block.size] + first_salt))
    tail = raw[n_words * 8 :].tobytes()
    if tail:
        acc ^= fmix64(int.from_bytes(tail, "little")) ^ (n_words * SALT & MASK)
    return fmix64(acc ^ raw.size)


def hex64(value: int) -> str:
    """As the header and the tools write it: 16 lower-case digits."""
    return "%016x" % value
