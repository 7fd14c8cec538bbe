# SPDX-License-Identifier: Apache-2.0
"""The envelope: the first 128 bytes of a file (specification section 1).

The envelope is the only authority on where sections lie; their order in the file means nothing.
"""
from __future__ import annotations

import struct
from typing import Dict, NamedTuple, Optional

from .errors import (Bounds, InvalidMagic, Report, UnsupportedFeature, UnsupportedVersion)

MAGIC = b"CMF\x01"
VERSION = 2
SIZE = 128
LAYOUT = struct.Struct("<4sIII12QQQ")  # magic, version, flags, features, 6 x (off, len), 2 hashes
DATA_ALIGNMENT = 4096
U64 = 1 << 64

TENSOR_DIR, BINARY_MASKS, QUANT_2F, DELTA_MASKS, HOT_PACKS, LOOP_MASKS, SKILL_FILE = range(7)
FEATURES = ("TENSOR_DIR", "BINARY_MASKS", "QUANT_2F", "DELTA_MASKS", "HOT_PACKS", "LOOP_MASKS",
            "SKILL_FILE")
RESERVED = (DELTA_MASKS, HOT_PACKS)

SECTIONS = ("header", "directory", "data", "masks", "vocab", "index")  # in the envelope's order
REQUIRED = ("header", "directory")


class Section(NamedTuple):
    offset: int  # bytes from the start of the file
    length: int  # bytes; 0 = absent

    @property
    def end(self) -> int:
        return self.offset + self.length


class Envelope(NamedTuple):
    version: int
    flags: int  # reserved: writers write 0, readers ignore it
    features: int  # bit mask over FEATURES
    sections: Dict[str, Section]
    header_hash: int  # hash64 of the section's bytes; 0 = absent
    directory_hash: int

    def has(self, bit: int) -> bool:
        return bool(self.features >> bit & 1)


def feature_name(bit: int) -> str:
    return "bit %d (%s)" % (bit, FEATURES[bit] if bit < len(FEATURES) else "unknown")


def parse(data, report: Report) -> Optional[Envelope]:
    """The envelope of a file, or None after a report that leaves nothing to read.

    Checks of section 1.2, in the reference's order: size, magic, version, features, then each
    section's range. A section with length 0 is absent: its offset is ignored. A section that was
    reported is left out of `sections`, so that a verifier can go on with the rest.
    """
    if len(data) < SIZE:
        report(Bounds("file is too small for the envelope", section="envelope", want=SIZE,
                      got=len(data)))
        return None
    fields = LAYOUT.unpack_from(data, 0)
    magic, version, flags, features = fields[:4]
    if magic != MAGIC:
        report(InvalidMagic("not a CMF file", section="envelope", offset=0, want=MAGIC.hex(),
                            got=magic.hex()))
        return None
    if version != VERSION:
        report(UnsupportedVersion("version is not supported", section="envelope", offset=4,
                                  want=VERSION, got=version))
        return None
    unknown = [bit for bit in range(32)
               if features >> bit & 1 and (bit in RESERVED or bit >= len(FEATURES))]
    if unknown:
        report(UnsupportedFeature("feature is not supported: "
                                  + ", ".join(feature_name(bit) for bit in unknown),
                                  section="envelope", offset=12, got="%#x" % features))
        return None
    sections = {}
    for i, name in enumerate(SECTIONS):
        section = Section(*fields[4 + 2 * i : 6 + 2 * i])
        if _is_sound(name, section, len(data), 16 + 16 * i, report):
            sections[name] = section
    return Envelope(version, flags, features, sections, *fields[16:18])


def _is_sound(name: str, section: Section, file_bytes: int, field: int, report: Report) -> bool:
    """field: file offset of the envelope's field of this section."""
    if section.length == 0:
        if name in REQUIRED:
            report(Bounds("section is required", section=name, offset=field + 8, want="> 0", got=0))
            return False
        return True
    if section.end >= U64:
        report(Bounds("offset + length is beyond 64 bits", section=name, offset=field,
                      want="< 2^64", got="%d + %d" % section))
        return False
    if section.end > file_bytes:
        report(Bounds("section ends behind the end of the file", section=name, offset=field,
                      want=file_bytes, got=section.end))
        return False
    if name == "data" and section.offset % DATA_ALIGNMENT:
        report(Bounds("offset is not a multiple of %d" % DATA_ALIGNMENT, section=name,
                      offset=field, want=0, got=section.offset % DATA_ALIGNMENT))
        return False
    return True
