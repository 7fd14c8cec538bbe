# SPDX-License-Identifier: Apache-2.0
"""The whole chain of one file: every rule of opening, every hash, digests, the signature beside it.

Never stops at the first problem. A note is no fault: something that a person may want to know.
"""
from __future__ import annotations

import os
import re
from typing import List, NamedTuple, Optional

from . import digests, envelope, ranges, signature, skills
from .codecs import TABLE, finite
from .errors import CmfError, HashMismatch, Parse
from .file import OPTIONAL, File
from .hash64 import hash64, hex64

HEX64 = re.compile(r"[0-9a-fA-F]{1,16}")


class Result(NamedTuple):
    file: str
    problems: List[CmfError]
    notes: List[str]

    @property
    def valid(self) -> bool:
        return not self.problems

    def as_json(self) -> dict:
        return {"file": self.file, "valid": self.valid, "notes": self.notes,
                "problems": [problem.as_json() for problem in self.problems]}


def verify(path, key: Optional[str] = None, use_mmap: bool = True) -> Result:
    """One file: of a sharded model, that shard alone. key: see signature.check."""
    problems: List[CmfError] = []
    file = File(path, report=problems.append, use_mmap=use_mmap)
    notes: List[Optional[str]] = []
    if file.envelope is not None:
        _check_section_hashes(file)
        _check_tensor_hashes(file)
        notes += _feature_notes(file) + _unused_notes(file)
    if file.header is not None:
        notes.append(_check_digests(file, problems))
        notes += _skill_notes(file)
    _check_numbers(file, problems)
    if file.data is not None:
        notes.append(signature.check(file.path, file.data, file.report, key))
    return Result(os.fspath(path), problems, [note for note in notes if note])


def _check_section_hashes(file: File) -> None:
    """Masks, tokenizer, index; header and directory were checked while opening."""
    if file.header is None:
        return
    hashes = file.header["section_hashes"] or {}
    for name in OPTIONAL:
        text, section = hashes.get(name), file.envelope.sections.get(name)
        if text is None or section is None or section.length == 0:
            continue
        if not HEX64.fullmatch(text):
            file.report(Parse("hash in the header is malformed", section=name,
                              want="16 hexadecimal digits", got=text))
            continue
        stored, actual = int(text, 16), hash64(file.section(name))
        if stored and stored != actual:
            file.report(HashMismatch("bytes do not have the stored hash", section=name,
                                     offset=section.offset, want=hex64(stored),
                                     got=hex64(actual)))


def _check_tensor_hashes(file: File) -> None:
    for entry in file.located:
        actual = hash64(file.payload(entry))
        if actual != entry.hash:
            file.report(HashMismatch("bytes do not have the stored hash", section="data",
                                     tensor=entry.name, offset=file.payload_offset(entry),
                                     want=hex64(entry.hash), got=hex64(actual)))


def _check_digests(file: File, problems: List[CmfError]) -> Optional[str]:
    """Behind the hashes: a part whose hash64 is wrong is not named again. A note if not checked."""
    if file.digests is None or file.digests == (None, {}):
        return None
    if digests.xxhash is None:
        return "digests not checked: the Python module `xxhash` is not there"
    named = {(p.section, p.tensor) for p in problems if isinstance(p, HashMismatch)}

    def compare(stored: bytes, data, section: str, tensor: Optional[str], offset: int) -> None:
        actual = digests.digest(data)
        if actual != stored and (section, tensor) not in named:
            file.report(HashMismatch("bytes do not have the stored digest", section=section,
                                     tensor=tensor, offset=offset, want=stored.hex(),
                                     got=actual.hex()))

    for name, stored in file.digests.sections.items():
        if name in file.envelope.sections:
            compare(stored, file.section(name), name, None, file.envelope.sections[name].offset)
    if file.digests.tensors is not None:
        for entry in file.located:
            compare(file.digests.tensors[entry.record], file.payload(entry), "data", entry.name,
                    file.payload_offset(entry))
    return None


def _check_numbers(file: File, problems: List[CmfError]) -> None:
    """Scales and values that are not finite, of payloads that are what their writer wrote."""
    named = {p.tensor for p in problems}
    for entry in file.located:
        if entry.name not in named and not finite(entry.dtype, file.payload(entry), entry.shape):
            file.report(Parse("a scale or a value is not a finite number", section="data",
                              tensor=entry.name, offset=file.payload_offset(entry)))


def _feature_notes(file: File) -> List[str]:
    """A feature bit that the content does not bear out, or the other way round."""
    env, dtypes = file.envelope, {TABLE[entry.dtype].name for entry in file.entries}
    section = env.sections.get("masks")
    has_masks = section is not None and section.length > 0
    states = {envelope.TENSOR_DIR: True, envelope.BINARY_MASKS: has_masks,
              envelope.QUANT_2F: bool(dtypes & {"q8_2f", "vbit"})}
    if "vbit_ro" in dtypes:  # of the same family, but its writers leave the bit clear
        del states[envelope.QUANT_2F]
    if file.header is not None:
        states[envelope.LOOP_MASKS] = has_masks and file.header.arch["num_loops"] > 1
        states[envelope.SKILL_FILE] = bool(skills.standalone(file.header))
    notes = ["feature %s is %s, but the content says otherwise"
             % (envelope.feature_name(bit), "set" if env.has(bit) else "not set")
             for bit, state in states.items() if env.has(bit) != state]
    if env.flags:
        notes.append("flags are %#x, not 0" % env.flags)
    return notes


def _unused_notes(file: File) -> List[str]:
    """Bytes that belong to nothing; runs of zeros are padding."""
    return ["%d bytes at offset %d belong to nothing" % (end - start, start)
            for start, end in ranges.unused(file.envelope, file.located, len(file.data))
            if not _is_zero(file.data, start, end)]


def _is_zero(data, start: int, end: int, piece: int = 1 << 20) -> bool:
    for at in range(start, end, piece):
        part = bytes(data[at : min(end, at + piece)])
        if part.count(0) != len(part):
            return False
    return True


def _skill_notes(file: File) -> List[str]:
    notes = []
    for skill in skills.registry(file.header, (e.name for e in file.entries)).values():
        try:
            skills.descriptor(skill, file.header)
        except CmfError as e:
            notes.append("cannot be routed to: %s" % e)
        if skill.record is None:
            notes.append("skill '%s' has tensors, but no record in the header" % skill.id)
    return notes
