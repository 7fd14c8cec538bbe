# SPDX-License-Identifier: Apache-2.0
"""One .cmf file: mapped, checked, its sections parsed.

`File(path)` either is a valid file or raises; there is no third state. A verifier passes another
`report` and gets as much of a damaged file as can be told apart.
"""
from __future__ import annotations

import mmap
import os
from typing import List, Optional

import numpy as np

from . import codecs, digests, directory, envelope, header, masks, ranges, sparse_index
from .envelope import SKILL_FILE
from .directory import Entry
from .errors import (Bounds, CmfError, FileNotFound, HashMismatch, Io, Parse, Report,
                     UnsupportedFeature, raise_error)
from .hash64 import hash64, hex64

OPTIONAL = ("masks", "vocab", "index")


class File:
    """path      as given
    data      the whole file: a read-only map, or bytes (use_mmap=False)
    envelope  None only if nothing could be read (never after a raising report)
    header    likewise
    entries   directory records in order; those of `located` have a payload that lies in the blob
    digests   what the header states of them (digests.py); verify compares
    masks     masks.Catalog or None
    index     list of sparse_index.IndexEntry or None

    A file that shrinks while it is mapped kills the process (SIGBUS): use_mmap=False reads it.
    """

    def __init__(self, path, report: Report = raise_error, use_mmap: bool = True):
        self.path = os.fspath(path)
        self._sink = report
        self.envelope: Optional[envelope.Envelope] = None
        self.header: Optional[header.Header] = None
        self.entries: List[Entry] = []
        self.located: List[Entry] = []
        self.digests: Optional[digests.Digests] = None
        self.masks: Optional[masks.Catalog] = None
        self.index: Optional[List[sparse_index.IndexEntry]] = None
        self.data = self._read(use_mmap)
        if self.data is not None:
            self._parse()

    def report(self, error: CmfError) -> None:
        if error.file is None:
            error.file = self.path
        self._sink(error)

    # ---- what was read ----
    def section(self, name: str) -> memoryview:
        """Bytes of a section; empty if it is absent. Valid while the File lives."""
        section = self.envelope.sections.get(name) if self.envelope else None
        if section is None or section.length == 0:
            return memoryview(b"")
        return memoryview(self.data)[section.offset : section.end]

    @property
    def vocab(self) -> bytes:
        """The tokenizer section: a Hugging Face tokenizer.json, verbatim."""
        return bytes(self.section("vocab"))

    def payload(self, entry: Entry) -> np.ndarray:
        """uint8 [nbytes], a view of the file; entry is one of `located`."""
        return np.frombuffer(self.data, dtype=np.uint8, count=entry.nbytes,
                             offset=self.payload_offset(entry)) if entry.nbytes else \
            np.zeros(0, dtype=np.uint8)

    def payload_offset(self, entry: Entry) -> int:
        """Of the payload in the file. An empty payload needs no blob."""
        blob = self.envelope.sections.get("data")
        return (blob.offset if blob else 0) + entry.off

    def values(self, entry: Entry) -> np.ndarray:
        """float32 [shape]"""
        try:
            return codecs.decode(entry.dtype, self.payload(entry), entry.shape)
        except codecs.Refused as e:
            kind = Bounds if codecs.TABLE[entry.dtype].decode else UnsupportedFeature
            raise kind(e.what, file=self.path, section="data", tensor=entry.name,
                       want=e.want, got=e.got) from None

    # ---- opening ----
    def _read(self, use_mmap: bool):
        try:
            with open(self.path, "rb") as f:
                size = os.fstat(f.fileno()).st_size
                if use_mmap and size:
                    try:
                        return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
                    except (OSError, ValueError):
                        pass  # a pipe or an odd file system: read it instead
                return f.read()
        except FileNotFoundError as e:
            self.report(FileNotFound(e.strerror))
        except OSError as e:
            self.report(Io(e.strerror or str(e)))
        return None

    def _parse(self) -> None:
        """In the order of the specification's validation rules."""
        self.envelope = envelope.parse(self.data, self.report)
        if self.envelope is None:
            return
        found = self.envelope.sections
        self._check_hash("header", self.envelope.header_hash)
        self._check_hash("directory", self.envelope.directory_hash)
        if "header" in found:
            self.header = header.parse(self.section("header"), found["header"].offset, self.report)
        listing = directory.Directory(None, [])
        if "directory" in found:
            listing = directory.parse(self.section("directory"), found["directory"].offset,
                                      codecs.TABLE, self.report)
            self.entries = listing.entries
        if "data" in found:
            self.located = [entry for entry in self.entries
                            if directory.check_range(entry, found["data"].length, self.report)]
        ranges.check(self.envelope, self.located, self.report)
        for entry in self.located:
            self._check_payload(entry)
        if self.header is not None:
            self._check_section_hash_keys()
            if listing.count is not None:
                self.digests = digests.parse(self.header.raw, listing.count, found, self.report)
            if found.get("masks") and found["masks"].length:
                self.masks = masks.parse(self.section("masks"), found["masks"].offset,
                                         self.header, self.report)
        if found.get("index") and found["index"].length:
            self.index = sparse_index.parse(self.section("index"), found["index"].offset,
                                            self.report)

    def _check_hash(self, name: str, stored: int) -> None:
        """The envelope's hashes, before the bytes are parsed. 0 = absent."""
        section = self.envelope.sections.get(name)
        if section is None or stored == 0:
            return
        actual = hash64(self.section(name))
        if actual != stored:
            self.report(HashMismatch("bytes do not have the stored hash", section=name,
                                     offset=section.offset, want=hex64(stored),
                                     got=hex64(actual)))

    def _check_payload(self, entry: Entry) -> None:
        """The size is what the directory states; the rest is what the payload does."""
        section, offset = "directory", None
        try:
            codecs.check_size(entry.dtype, entry.nbytes, entry.shape)
            section, offset = "data", self.payload_offset(entry)
            codecs.check(entry.dtype, self.payload(entry), entry.shape)
        except codecs.Refused as e:
            self.report(Bounds(e.what, section=section, tensor=entry.name, offset=offset,
                               want=e.want, got=e.got))

    def _check_section_hash_keys(self) -> None:
        """A hash of a section that is not there belongs to another file; but the reference leaves
        that of the specialist's tokenizer in a standalone skill, which has none."""
        hashes = self.header["section_hashes"] or {}
        for name in OPTIONAL:
            section = self.envelope.sections.get(name)
            text = hashes.get(name)
            if text is None or section is None or section.length:
                continue
            if name == "vocab" and self.envelope.has(SKILL_FILE):
                continue
            if section.offset == 0 or text.strip("0"):
                self.report(Parse("header has a hash of section '%s', which is absent" % name,
                                  section="header", got=text))
