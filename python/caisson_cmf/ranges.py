# SPDX-License-Identifier: Apache-2.0
"""Which bytes of a file are in use, by what, and which belong to nothing.

Ranges in use are disjoint: the envelope, the sections but the blob, and each payload. Names may
share one identical payload. The part of the blob behind its last payload may not reach into
anything else; between its payloads it may span sections (an appended file has such a blob).
"""
from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

from .directory import Entry
from .envelope import SIZE, Envelope
from .errors import Bounds, Report


class Range(NamedTuple):
    start: int
    end: int
    section: str
    tensor: str = ""

    def __str__(self) -> str:
        owner = "tensor '%s'" % self.tensor if self.tensor else self.section
        return "%s [%d, %d)" % (owner, self.start, self.end)


def in_use(envelope: Envelope, entries: Sequence[Entry]) -> List[Range]:
    """Sorted; without empty ranges; a payload that several names share comes once."""
    found = [Range(0, SIZE, "envelope")]
    for name, section in envelope.sections.items():
        if name != "data" and section.length:
            found.append(Range(section.offset, section.end, name))
    blob = envelope.sections.get("data")
    if blob is not None and blob.length:
        payloads = {}
        for entry in entries:
            if entry.nbytes and entry.off + entry.nbytes <= blob.length:
                start = blob.offset + entry.off
                payloads.setdefault((start, start + entry.nbytes), entry.name)
        found += [Range(start, end, "data", name) for (start, end), name in payloads.items()]
        last = max((end for _, end in payloads), default=blob.offset)
        if last < blob.end:
            found.append(Range(last, blob.end, "data"))
    return sorted(found)


def check(envelope: Envelope, entries: Sequence[Entry], report: Report) -> None:
    """Reports each range that begins inside one before it."""
    furthest = None
    for here in in_use(envelope, entries):
        if furthest is not None and here.start < furthest.end:
            report(Bounds("%s overlaps %s" % (here, furthest), section=here.section,
                          tensor=here.tensor or None, offset=here.start, want=furthest.end,
                          got=here.start))
        if furthest is None or here.end > furthest.end:
            furthest = here


def unused(envelope: Envelope, entries: Sequence[Entry], file_bytes: int) -> List[Tuple[int, int]]:
    """(start, end) of each run of bytes that nothing refers to, padding included."""
    gaps, at = [], 0
    for here in in_use(envelope, entries):
        if here.start > at:
            gaps.append((at, here.start))
        at = max(at, here.end)
    if at < file_bytes:
        gaps.append((at, file_bytes))
    return gaps
