# SPDX-License-Identifier: Apache-2.0
"""Writes small CMF files for tests, sound or with whatever fault the caller asks for."""
import json
import struct

import support  # puts caisson_cmf on the path
from caisson_cmf import hash64

ARCH = {"arch_name": "t", "hidden_size": 4, "intermediate_size": 12, "num_layers": 2,
        "num_attention_heads": 3, "num_kv_heads": 1, "head_dim": 4, "vocab_size": 2,
        "layer_types": ["FullAttention", "FullAttention"], "rms_norm_eps": 1e-6,
        "max_position_embeddings": 8}
NORM = ("model.norm.weight", 1, (4,), bytes.fromhex("003c004000420044"))  # f16 1 2 3 4
SECTIONS = ("header", "directory", "data", "masks", "vocab", "index")


def header(arch=(), **keys):
    """Header bytes: `arch` adds to or replaces keys of ARCH, `keys` those of the top level."""
    value = {"format": "cmf", "version": 2, "arch": {**ARCH, **dict(arch)}, "quant_type": "F16"}
    value.update(keys)
    return json.dumps(value).encode("utf-8")


def directory(records):
    """records: (name, dtype, shape, off, nbytes, hash), the shape at most 6 long"""
    table, pool = b"", b""
    for name, dtype, shape, off, nbytes, hash_ in records:
        raw = name.encode("utf-8") if isinstance(name, str) else name
        dims = list(shape) + [0] * (6 - len(shape))
        table += struct.pack("<IHBB6IQQQ", len(pool), len(raw), dtype, len(shape), *dims, off,
                             nbytes, hash_)
        pool += raw
    return struct.pack("<QQ", len(records), 16 + len(table)) + table + pool


def masks(default_task, metas, blobs):
    """metas: what meta JSON says of each mask; its place follows from `blobs` unless given."""
    meta_len = 0
    while True:
        at, places = (8 + meta_len + 7) & ~7, []
        for blob in blobs:
            places.append(at)
            at = (at + len(blob) + 7) & ~7
        entries = [{"blob_off": place, "blob_len": len(blob), **meta}
                   for place, blob, meta in zip(places, blobs, metas)]
        text = json.dumps({"default_task": default_task, "masks": entries}).encode()
        if len(text) == meta_len:
            break
        meta_len = len(text)
    out = struct.pack("<II", len(metas), meta_len) + text
    for place, blob in zip(places, blobs):
        out = out.ljust(place, b"\0") + blob
    return out


def file(tensors=(NORM,), head=None, features=1, flags=0, hashes=True, places=(), **sections):
    """The bytes of a file. tensors: (name, dtype, shape, payload). `sections` gives the bytes of
    masks, vocab and index; `places` replaces (offset, length) pairs of the envelope."""
    records, blob = [], b""
    for name, dtype, shape, payload in tensors:
        blob = blob.ljust((len(blob) + 63) & ~63, b"\0")
        records.append((name, dtype, shape, len(blob), len(payload), hash64(payload)))
        blob += payload
    parts = {"header": header() if head is None else head, "directory": directory(records),
             "data": blob, **sections}
    body, where = b"\0" * 128, {}
    for name in SECTIONS:
        part = parts.get(name, b"")
        if name == "data":
            body = body.ljust((len(body) + 4095) & ~4095, b"\0")
        where[name] = (len(body), len(part)) if part else (0, 0)
        body += part
    where.update(places)
    stored = [hash64(parts[name]) if hashes else 0 for name in ("header", "directory")]
    envelope = struct.pack("<4sIII12QQQ", b"CMF\x01", 2, flags, features,
                           *(n for name in SECTIONS for n in where[name]), *stored)
    return envelope + body[128:]
