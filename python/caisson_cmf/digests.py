# SPDX-License-Identifier: Apache-2.0
"""Order-sensitive digests, an addition of Caisson (docs/cmf.md): hash64 does not see swapped words.

    caisson.tensor_digests   base64 of 16 bytes a directory record, in directory order
    caisson.section_digests  {directory, masks, vocab, index: base64 of 16 bytes}, each optional

A digest is XXH3-128 (seed 0, canonical byte order) of the bytes; bytes above 256 KiB are cut into
pieces of 256 KiB and the digest is that of the pieces' digests, one behind the other. Computing one
needs the module `xxhash`; the form of the keys is checked without it, while opening.
"""
from __future__ import annotations

import base64
import binascii
from typing import Dict, List, NamedTuple, Optional

from .envelope import Section
from .errors import Parse, Report
from .schema import Fields

try:
    import xxhash
except ImportError:
    xxhash = None

TENSOR_KEY, SECTION_KEY = "caisson.tensor_digests", "caisson.section_digests"
COVERED = ("directory", "masks", "vocab", "index")
PIECE = 256 << 10
DIGEST_BYTES = 16


class Digests(NamedTuple):
    tensors: Optional[List[bytes]]  # one a directory record; None: the file has none
    sections: Dict[str, bytes]


def digest(data) -> bytes:
    view = memoryview(data)
    if len(view) <= PIECE:
        return xxhash.xxh3_128(view).digest()
    pieces = (view[at : at + PIECE] for at in range(0, len(view), PIECE))
    return xxhash.xxh3_128(b"".join(xxhash.xxh3_128(p).digest() for p in pieces)).digest()


def parse(raw: Fields, n_records: int, sections: Dict[str, Section], report: Report) -> Digests:
    """What the header states. A key that is malformed was reported and counts as absent."""
    tensors, found = None, {}
    try:
        if {TENSOR_KEY, SECTION_KEY} & raw.twice:
            raise ValueError("a key of digests is given twice")
        if TENSOR_KEY in raw:
            joined = _decoded(raw[TENSOR_KEY], TENSOR_KEY, DIGEST_BYTES * n_records)
            tensors = [joined[i : i + DIGEST_BYTES] for i in range(0, len(joined), DIGEST_BYTES)]
        if SECTION_KEY in raw:
            found = _section_digests(raw[SECTION_KEY], sections)
    except ValueError as e:
        report(Parse(str(e), section="header"))
    return Digests(tensors, found)


def _section_digests(value, sections: Dict[str, Section]) -> Dict[str, bytes]:
    if not isinstance(value, Fields):
        raise ValueError("%s: want an object" % SECTION_KEY)
    found = {}
    for name, text in value.items():
        where = "%s.%s" % (SECTION_KEY, name)
        if name not in COVERED:
            raise ValueError("%s: no section that has a digest" % where)
        if name in value.twice:
            raise ValueError("%s: given twice" % where)
        if name in sections and sections[name].length == 0:
            raise ValueError("%s: the section is absent" % where)
        found[name] = _decoded(text, where, DIGEST_BYTES)
    return found


def _decoded(text, key: str, want: int) -> bytes:
    """Exactly the base64 of `want` bytes: padded, no other characters, unused bits zero."""
    if not isinstance(text, str):
        raise ValueError("%s: want a string" % key)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError("%s: not base64: %s" % (key, e)) from None
    if base64.b64encode(raw).decode() != text:
        raise ValueError("%s: not the base64 of its bytes" % key)
    if len(raw) != want:
        raise ValueError("%s: want %d bytes, got %d" % (key, want, len(raw)))
    return raw
