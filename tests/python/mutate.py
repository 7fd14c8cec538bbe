# SPDX-License-Identifier: Apache-2.0
"""Damages CMF files in ways that a reader has to see, with the hashes made right again or not.

Rehashing matters: a flipped byte is found by its hash before any rule looks at it; only a file
whose hashes agree reaches the rules behind them.
"""
import json
import random
import struct

import support  # puts caisson_cmf on the path
from caisson_cmf import File, hash64

RECORD, DIRECTORY_HASH, HEADER_HASH = 56, 0x78, 0x70
LENGTHS = (0, 1, 7, 8, 15, 16, 63, 64, 4095, 4096, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, 1 << 63,
           (1 << 64) - 64, (1 << 64) - 1)


class Mutator:
    """seed decides everything: the n-th mutation of a file is always the same."""

    def __init__(self, path, seed):
        self.path, self.blob = path, support.read(path)
        self.file = File(path)
        self.at = self.file.envelope.sections
        self.rng = random.Random("%s %s" % (seed, path.rsplit("/", 1)[-1]))

    def mutations(self, n):
        """n pairs of (what was done, bytes)"""
        kinds = [self.flip, self.truncate, self.swap, self.envelope_field, self.directory_field,
                 self.directory_byte, self.header_byte, self.header_value, self.payload_byte,
                 self.payload_number, self.section_byte]
        for i in range(n):
            kind = kinds[i % len(kinds)]
            result = kind(bytearray(self.blob))
            if result is not None:
                yield "%s: %s %s" % (self.path.rsplit("/", 1)[-1], kind.__name__, result[0]), \
                    bytes(result[1])

    # ---- hashes left alone ----
    def flip(self, blob):
        at, bit = self.rng.randrange(len(blob)), self.rng.randrange(8)
        blob[at] ^= 1 << bit
        return "%d.%d" % (at, bit), blob

    def truncate(self, blob):
        size = self.rng.randrange(len(blob))
        return size, blob[:size]

    def swap(self, blob):
        """Two 8-byte words of a payload: hash64 does not see it, a digest does."""
        entries = [e for e in self.file.located if e.nbytes >= 16]
        if not entries:
            return None
        entry = self.rng.choice(entries)
        start = self.file.payload_offset(entry)
        a, b = (start + 8 * i for i in self.rng.sample(range(entry.nbytes // 8), 2))
        blob[a : a + 8], blob[b : b + 8] = blob[b : b + 8], blob[a : a + 8]
        return "%s: words at %d and %d" % (entry.name, a - start, b - start), blob

    def envelope_field(self, blob):
        at = self.rng.choice([4, 8, 12] + list(range(16, 112, 8)))
        value = self.rng.choice(LENGTHS + (len(blob), len(blob) - 1, len(blob) + 1))
        if self.rng.random() < 0.5:  # a little off instead
            size = 8 if at >= 16 else 4
            value = int.from_bytes(blob[at : at + size], "little")
            value += self.rng.choice((-64, -1, 1, 64))
        struct.pack_into("<Q" if at >= 16 else "<I", blob, at,
                         value % (1 << (64 if at >= 16 else 32)))
        return "%#x = %d" % (at, value), blob

    # ---- made right again ----
    def directory_field(self, blob):
        start = self.at["directory"].offset
        if not self.file.entries or self.rng.random() < 0.1:
            where, form = start + self.rng.choice((0, 8)), "<Q"
        else:
            record = start + 16 + RECORD * self.rng.randrange(len(self.file.entries))
            offset, form = self.rng.choice(
                [(0, "<I"), (4, "<H"), (6, "<B"), (7, "<B"), (8, "<I"), (12, "<I"), (16, "<I"),
                 (32, "<Q"), (40, "<Q")])
            where = record + offset
        size = struct.calcsize(form)
        old = int.from_bytes(blob[where : where + size], "little")
        value = self.rng.choice(LENGTHS + (old + 1, old - 1, old + 64, old * 2, old ^ 1, 3, 5))
        struct.pack_into(form, blob, where, value % (1 << 8 * size))
        return "%d: %d -> %d" % (where - start, old, value), self.rehash(blob)

    def directory_byte(self, blob):
        section = self.at["directory"]
        return self._byte(blob, section.offset, section.end)

    def header_byte(self, blob):
        section = self.at["header"]
        return self._byte(blob, section.offset, section.end)

    def header_value(self, blob):
        """Another value of about the same length for one key, blanks in place of what is left."""
        section = self.at["header"]
        raw = bytes(blob[section.offset : section.end])
        head = json.loads(raw.decode())
        spots = list(_leaves(head))
        owner, key = self.rng.choice(spots)
        old = owner[key]
        owner[key] = self.rng.choice([None, 0, -1, 1, 1.5, True, "", "x", [], {}, old, 1 << 32,
                                      1 << 64, [old]])
        text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
        if len(text) > len(raw):
            return None
        blob[section.offset : section.end] = text.ljust(len(raw))
        return "%s: %.40r -> %r" % (key, old, owner[key]), self.rehash(blob)

    def payload_byte(self, blob):
        """A byte near either end of a payload, where widths, pointers and counts lie."""
        entries = [e for e in self.file.located if e.nbytes]
        if not entries:
            return None
        entry = self.rng.choice(entries)
        start = self.file.payload_offset(entry)
        near = min(entry.nbytes, 48)
        at = self.rng.choice((start + self.rng.randrange(near),
                              start + entry.nbytes - 1 - self.rng.randrange(near)))
        old, blob[at] = blob[at], self.rng.choice((0, 1, 2, 3, 7, 8, 9, 127, 255, blob[at] ^ 1))
        what = "%s + %d: %d -> %d" % (entry.name, at - start, old, blob[at])
        return what, self.rehash_payload(blob, entry)

    def payload_number(self, blob):
        """Bytes of a payload that, where a number lies there, make it infinite or none."""
        entries = [e for e in self.file.located if e.nbytes >= 4]
        if not entries:
            return None
        entry = self.rng.choice(entries)
        start = self.file.payload_offset(entry)
        odd = self.rng.choice((b"\x00\x7c", b"\x01\xfe", b"\x80\x7f", b"\x00\x00\x80\xff"))
        at = self.rng.choice((0, entry.nbytes - len(odd),
                              self.rng.randrange(entry.nbytes - len(odd) + 1)))
        blob[start + at : start + at + len(odd)] = odd
        return "%s + %d: %s" % (entry.name, at, odd.hex()), self.rehash_payload(blob, entry)

    def rehash_payload(self, blob, entry):
        start = self.file.payload_offset(entry)
        record = self.at["directory"].offset + 16 + RECORD * entry.record
        struct.pack_into("<Q", blob, record + 48, hash64(blob[start : start + entry.nbytes]))
        return self.rehash(blob)

    def section_byte(self, blob):
        """A byte of masks, vocab or index; the header's hash of it follows."""
        there = [name for name in ("masks", "index", "vocab") if self.at[name].length]
        if not there:
            return None
        section = self.at[self.rng.choice(there)]
        what, blob = self._byte(blob, section.offset, section.end)
        head = self.at["header"]
        raw = bytes(blob[head.offset : head.end])
        for name, text in (self.file.header["section_hashes"] or {}).items():
            if text:
                new = "%016x" % hash64(blob[self.at[name].offset : self.at[name].end])
                raw = raw.replace(text.encode(), new.encode())
        blob[head.offset : head.end] = raw
        return what, self.rehash(blob)

    def _byte(self, blob, start, end):
        at = self.rng.randrange(start, end)
        old = blob[at]
        blob[at] = self.rng.choice((old ^ 1 << self.rng.randrange(8), 0, 255, ord("0"), ord('"')))
        return "%d: %d -> %d" % (at - start, old, blob[at]), self.rehash(blob)

    def rehash(self, blob):
        for name, where in (("header", HEADER_HASH), ("directory", DIRECTORY_HASH)):
            section = self.at[name]
            struct.pack_into("<Q", blob, where, hash64(blob[section.offset : section.end]))
        return blob


def _leaves(value):
    """(container, key) of everything inside."""
    items = value.items() if isinstance(value, dict) else \
        enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _leaves(inner)
