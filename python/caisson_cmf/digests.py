# SPDX-License-Identifier: Apache-2.0
"""Order-sensitive digests, an addition of Caisson (docs/cmf.md): hash64 does not see swapped words.

    caisson.tensor_digests   base64 of 16 bytes a directory record, in directory order
    caisson.section_digests  {section: base64 of 16 bytes}

A digest is XXH3-128 (seed 0, canonical byte order) of the bytes; bytes above 256 KiB are cut into
pieces of 256 KiB and the digest is that of the pieces' digests, one behind the other. Computing one
needs the module `xxhash`.
"""
from __future__ import annotations

import base64
import binascii
from typing import Dict, List, Optional

from .errors import HashMismatch, Parse, Report
from .file import File

try:
    import xxhash
except ImportError:
    xxhash = None

TENSOR_KEY, SECTION_KEY = "caisson.tensor_digests", "caisson.section_digests"
PIECE = 256 << 10
DIGEST_BYTES = 16


def digest(data) -> bytes:
    view = memoryview(data)
    if len(view) <= PIECE:
        return xxhash.xxh3_128(view).digest()
    pieces = (view[at : at + PIECE] for at in range(0, len(view), PIECE))
    return xxhash.xxh3_128(b"".join(xxhash.xxh3_128(p).digest() for p in pieces)).digest()


def check(file: File, report: Report) -> Optional[str]:
    """Compares what the header states with the bytes; a note when that could not be done."""
    raw = file.header.raw
    if TENSOR_KEY not in raw and SECTION_KEY not in raw:
        return None
    try:
        tensors = _tensor_digests(raw.get(TENSOR_KEY), len(file.entries))
        sections = _section_digests(raw.get(SECTION_KEY))
    except ValueError as e:
        report(Parse(str(e), section="header"))
        return None
    if xxhash is None:
        return "digests not checked: the Python module `xxhash` is not there"
    for name, stored in sections.items():
        section = file.envelope.sections.get(name)
        if section is None:
            continue
        actual = digest(file.section(name))
        if actual != stored:
            report(HashMismatch("bytes do not have the stored digest", section=name,
                                offset=section.offset, want=stored.hex(), got=actual.hex()))
    if tensors is not None:
        for entry in file.located:
            stored, actual = tensors[entry.record], digest(file.payload(entry))
            if actual != stored:
                report(HashMismatch("bytes do not have the stored digest", section="data",
                                    tensor=entry.name, offset=file.payload_offset(entry),
                                    want=stored.hex(), got=actual.hex()))
    return None


def _decoded(text, key: str, want: int) -> bytes:
    if not isinstance(text, str):
        raise ValueError("%s: want a string" % key)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as e:
        raise ValueError("%s: not base64: %s" % (key, e)) from None
    if len(raw) != want:
        raise ValueError("%s: want %d bytes, got %d" % (key, want, len(raw)))
    return raw


def _tensor_digests(text, count: int) -> Optional[List[bytes]]:
    if text is None:
        return None
    raw = _decoded(text, TENSOR_KEY, DIGEST_BYTES * count)
    return [raw[i : i + DIGEST_BYTES] for i in range(0, len(raw), DIGEST_BYTES)]


def _section_digests(value) -> Dict[str, bytes]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("%s: want an object" % SECTION_KEY)
    return {name: _decoded(text, "%s.%s" % (SECTION_KEY, name), DIGEST_BYTES)
            for name, text in value.items()}
