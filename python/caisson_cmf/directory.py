# SPDX-License-Identifier: Apache-2.0
"""The tensor directory (specification section 3): binary records and a pool of names.

    u64 count, u64 pool_off, count x 56-byte record, ..., UTF-8 name pool at pool_off

    record: +0 u32 name_off (in the pool)  +4 u16 name_len  +6 u8 dtype  +7 u8 ndim
            +8 u32 shape[6]  +32 u64 off (in the blob, multiple of 64)  +40 u64 nbytes  +48 u64 hash
"""
from __future__ import annotations

import struct
from typing import List, NamedTuple, Optional, Tuple

from .errors import Bounds, Parse, Report
from .envelope import U64

HEAD = struct.Struct("<QQ")
RECORD = struct.Struct("<IHBB6IQQQ")
MAX_NDIM = 6
ALIGNMENT = 64


class Entry(NamedTuple):
    """One tensor as the directory states it."""

    name: str
    dtype: int  # a row of codecs.TABLE
    shape: Tuple[int, ...]
    off: int  # bytes from the start of the blob
    nbytes: int
    hash: int  # hash64 of the payload
    record: int  # number of its record in this file

    @property
    def elements(self) -> int:
        n = 1
        for dim in self.shape:
            n *= dim
        return n


class Directory(NamedTuple):
    count: Optional[int]  # records, as the section states; None if they cannot be read
    entries: List[Entry]  # those that could be read; each of the others was reported


def parse(data, offset: int, known_dtypes, report: Report) -> Directory:
    """offset: of the section in the file."""
    def bad(what: str, at: int, record: Optional[int] = None, **values) -> None:
        tensor = None if record is None else "#%d" % record
        report(Parse(what, section="directory", tensor=tensor, offset=offset + at, **values))

    if len(data) < HEAD.size:
        bad("section is too short", 0, want=HEAD.size, got=len(data))
        return Directory(None, [])
    count, pool_off = HEAD.unpack_from(data, 0)
    records_end = HEAD.size + count * RECORD.size
    if records_end > len(data):
        bad("more records than the section can hold", 0,
            want=(len(data) - HEAD.size) // RECORD.size, got=count)
        return Directory(None, [])
    if not records_end <= pool_off <= len(data):
        bad("name pool lies outside of its place", 8,
            want="%d to %d" % (records_end, len(data)), got=pool_off)
        return Directory(None, [])
    pool = bytes(data[pool_off:])
    entries, names = [], set()
    for i in range(count):
        at = HEAD.size + i * RECORD.size
        name_off, name_len, dtype, ndim, *rest = RECORD.unpack_from(data, at)
        if ndim > MAX_NDIM:
            bad("more than %d dimensions" % MAX_NDIM, at + 7, i, want=MAX_NDIM, got=ndim)
            continue
        if name_off + name_len > len(pool):
            bad("name ends behind the pool", at, i, want=len(pool), got=name_off + name_len)
            continue
        try:
            name = pool[name_off : name_off + name_len].decode("utf-8")
        except UnicodeDecodeError:
            bad("name is not UTF-8", pool_off + name_off, i)
            continue
        if dtype not in known_dtypes:
            bad("unknown dtype id %d of tensor '%s'" % (dtype, name), at + 6, i, got=dtype)
            continue
        if name in names:
            bad("duplicate tensor name '%s'" % name, at, i)
            continue
        names.add(name)
        entries.append(Entry(name, dtype, tuple(rest[:ndim]), *rest[6:9], record=i))
    return Directory(count, entries)


def merged(entries) -> bytes:
    """The directory of the one file that the tool's `merge` makes of a model with these entries:
    payloads in order, those of 16 KiB and more on 4096 bytes, others on 64 (docs/cmf.md)."""
    table, pool, off = b"", b"", 0
    for e in entries:
        name, start = e.name.encode("utf-8"), 0
        if e.nbytes:
            align = 4096 if e.nbytes >= 16384 else 64
            start = (off + align - 1) // align * align
            off = start + e.nbytes
        dims = list(e.shape) + [0] * (6 - len(e.shape))
        table += struct.pack("<IHBB6IQQQ", len(pool), len(name), e.dtype, len(e.shape), *dims, start,
                             e.nbytes, e.hash)
        pool += name
    return struct.pack("<QQ", len(entries), 16 + len(table)) + table + pool


def check_range(entry: Entry, data_len: int, report: Report) -> bool:
    """Alignment, range and element count of one tensor against the blob's length."""
    def bad(what: str, **values) -> bool:
        report(Bounds(what, section="directory", tensor=entry.name, **values))
        return False

    if entry.off % ALIGNMENT:
        return bad("offset is not a multiple of %d" % ALIGNMENT, want=0,
                   got=entry.off % ALIGNMENT)
    if entry.off + entry.nbytes > data_len:
        return bad("payload ends behind the blob", want=data_len, got=entry.off + entry.nbytes)
    product = 1
    for dim in entry.shape:
        product *= dim
        if product >= U64:
            return bad("product of the dimensions is beyond 64 bits", want="< 2^64",
                       got="x".join(map(str, entry.shape)))
    return True
