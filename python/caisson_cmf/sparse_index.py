# SPDX-License-Identifier: Apache-2.0
"""The sparse index (specification section 7): deprecated; read, never used.

    u32 n_entries, u32 reserved, then entries on multiples of 4 from the section's start:
    u32 task_id, u32 layer_idx, u32 n_groups, u32 n_heads, u16 group[n_groups], u8 head[n_heads]

Group g stands for the neurons 32g to 32g + 31.
"""
from __future__ import annotations

import struct
from typing import List, NamedTuple, Optional

import numpy as np

from .errors import Parse, Report

HEAD = struct.Struct("<II")
ENTRY = struct.Struct("<IIII")


class IndexEntry(NamedTuple):
    task_id: int
    layer_idx: int
    groups: List[int]
    heads: List[int]


def parse(data, offset: int, report: Report) -> Optional[List[IndexEntry]]:
    """offset: of the section in the file."""
    def bad(what: str, at: int, want, got) -> None:
        report(Parse(what, section="index", offset=offset + at, want=want, got=got))

    if len(data) < HEAD.size:
        bad("section is too short", 0, HEAD.size, len(data))
        return None
    n_entries, _ = HEAD.unpack_from(data, 0)
    if HEAD.size + n_entries * ENTRY.size > len(data):
        bad("more entries than the section can hold", 0, (len(data) - HEAD.size) // ENTRY.size,
            n_entries)
        return None
    entries, at = [], HEAD.size
    for i in range(n_entries):
        if at + ENTRY.size > len(data):
            bad("entry %d ends behind the section" % i, at, len(data), at + ENTRY.size)
            return None
        task_id, layer_idx, n_groups, n_heads = ENTRY.unpack_from(data, at)
        groups_at = at + ENTRY.size
        heads_at = groups_at + 2 * n_groups
        end = heads_at + n_heads
        if end > len(data):
            bad("entry %d ends behind the section" % i, at, len(data), end)
            return None
        groups = np.frombuffer(data[groups_at:heads_at], dtype="<u2").tolist()
        entries.append(IndexEntry(task_id, layer_idx, groups, list(bytes(data[heads_at:end]))))
        at = (end + 3) & ~3
    return entries
