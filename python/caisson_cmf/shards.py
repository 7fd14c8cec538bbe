# SPDX-License-Identifier: Apache-2.0
"""Sharded models (specification section 10): `{base}-{no:05}-of-{count:05}.cmf`, no from 1.

Each shard is a complete file of its own. Masks, tokenizer, chat bundle and the skills registry are
those of shard 1. Any of the names opens the model.
"""
from __future__ import annotations

import os
import re
from typing import List

from .envelope import MAGIC
from .errors import CmfError, FileNotFound, Parse
from .file import File
from .ranges import unused

SET = "caisson.shard_set"  # a key of our own: a text that all shards of a model share
NAME = re.compile(r"^(?P<base>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.cmf$", re.DOTALL)


def open_all(path, use_mmap: bool = True) -> List[File]:
    """The files of the model that `path` is or belongs to, in shard order; raises CmfError."""
    path = os.fspath(path)
    first = File(path, use_mmap=use_mmap)
    block = first.header["shard"]
    folder, file_name = os.path.split(path)
    match = NAME.match(file_name)
    if block is None:
        if match is not None and int(match["count"]) > 1:  # half a model is none
            _check_block(first, int(match["no"]), int(match["count"]))
        return [first]
    _refuse_concatenated(first)
    if match is None:
        if (block["no"], block["count"]) == (1, 1):
            return [first]
        raise _bad(first, "file name is not that of a shard", "NAME-%05d-of-%05d.cmf"
                   % (block["no"], block["count"]), file_name)
    if int(match["count"]) != block["count"]:
        raise _bad(first, "shard count differs from the file name's", int(match["count"]),
                   block["count"])
    files = []
    for no in range(1, block["count"] + 1):
        name = "%s-%05d-of-%05d.cmf" % (match["base"], no, block["count"])
        if name == file_name:
            file = first
        else:
            try:
                file = File(os.path.join(folder, name), use_mmap=use_mmap)
            except FileNotFound as e:
                raise FileNotFound("shard %d of %d is missing" % (no, block["count"]),
                                   file=e.file) from None
        _check_block(file, no, block["count"])
        _refuse_concatenated(file)
        files.append(file)
        if file.header.arch != files[0].header.arch:
            raise _bad(file, "shard %d belongs to another model: its arch differs from shard 1's"
                       % no)
        if _set_of(file) != _set_of(files[0]):
            raise _bad(file, "shard %d belongs to another model" % no, _set_of(files[0]),
                       _set_of(file))
    if not files:
        raise _bad(first, "shard count is 0", ">= 1", 0)
    _refuse_duplicates(files)
    return files


def _check_block(file: File, no: int, count: int) -> None:
    block = file.header["shard"]
    if block is None:
        raise _bad(file, "file has no shard block", "%d of %d" % (no, count), "none")
    if (block["no"], block["count"]) != (no, count):
        raise _bad(file, "shard block names another place", "%d of %d" % (no, count),
                   "%(no)d of %(count)d" % block)


def _set_of(file: File) -> str:
    value = file.header.raw.get(SET)
    return value if isinstance(value, str) else ""


def _refuse_concatenated(file: File) -> None:
    """Another file's envelope right behind the last byte in use."""
    gaps = unused(file.envelope, file.located, len(file.data))
    if gaps and gaps[-1][1] == len(file.data) and \
            file.data[gaps[-1][0] : gaps[-1][0] + len(MAGIC)] == MAGIC:
        raise _bad(file, "another file is concatenated behind this shard", len(file.data),
                   gaps[-1][0])


def _refuse_duplicates(files: List[File]) -> None:
    seen = {}
    for file in files:
        for entry in file.entries:
            other = seen.setdefault(entry.name, file)
            if other is not file:
                raise Parse("tensor is in two shards", file=file.path, section="directory",
                            tensor=entry.name, want=other.path, got=file.path)


def _bad(file: File, what: str, want=None, got=None) -> CmfError:
    return Parse(what, file=file.path, section="header", want=want, got=got)
