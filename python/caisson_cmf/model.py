# SPDX-License-Identifier: Apache-2.0
"""A model: one file or a set of shards, seen as one directory."""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Union

import numpy as np

from . import codecs, directory, shards, skills
from .directory import Entry
from .errors import MissingTensor, Parse
from .file import File
from .hash64 import hash64, hex64


class Located(NamedTuple):
    """A tensor and the file that holds it."""

    file: File
    entry: Entry

    @property
    def dtype(self) -> str:
        return codecs.TABLE[self.entry.dtype].name

    @property
    def shape(self):
        return self.entry.shape

    def payload(self) -> np.ndarray:
        """uint8 [nbytes]: the bytes as they lie in the file."""
        return self.file.payload(self.entry)

    def values(self) -> np.ndarray:
        """float32 [shape]"""
        return self.file.values(self.entry)


class Model:
    """`Model(path)`; any shard's name opens the whole set. Raises CmfError.

    header   of the first file      masks, index, vocab   likewise
    tensors  name -> Located, in file and directory order
    skills   id -> skills.Skill
    """

    def __init__(self, path, use_mmap: bool = True):
        self.files: List[File] = shards.open_all(path, use_mmap)
        first = self.files[0]
        self.header, self.masks, self.index = first.header, first.masks, first.index
        self.tensors: Dict[str, Located] = {
            entry.name: Located(file, entry) for file in self.files for entry in file.entries}
        self.skills = skills.registry(self.header, self.tensors)

    @property
    def arch(self) -> dict:
        return self.header.arch

    @property
    def vocab(self) -> bytes:
        return self.files[0].vocab

    @property
    def is_standalone_skill(self) -> bool:
        return bool(skills.standalone(self.header))

    def find(self, name: str, skill: Optional[str] = None) -> Located:
        """The tensor that `name` means while `skill` is active: the skill's own, or the backbone's.
        MissingTensor; Parse for a skill that the file does not know."""
        if skill is not None:
            if skill not in self.skills:
                raise Parse("skill '%s' is not in the file" % skill, file=self.files[0].path)
            name = self.skills[skill].replaces.get(name, name)
        if name not in self.tensors:
            raise MissingTensor("tensor not found", file=self.files[0].path, tensor=name)
        return self.tensors[name]

    def values(self, name: str, skill: Optional[str] = None) -> np.ndarray:
        """float32 [shape]"""
        return self.find(name, skill).values()

    @property
    def base_key(self) -> str:
        """What a skill file that is cut for this model calls it (specification 9.1): the hash of its
        directory; of shards, of the directory that their merged file has."""
        if len(self.files) == 1:
            return hex64(self.files[0].envelope.directory_hash)
        return hex64(hash64(directory.merged([t.entry for t in self.tensors.values()])))

    def with_skill_file(self, skill: Union[str, "Model"],
                        force: bool = False) -> Dict[str, Located]:
        """This model's directory with a standalone skill's tensors in place of those of the same
        name (specification 9.1); tensors that only the skill has are left out. Parse when the
        skill was cut from another base, unless `force`."""
        skill = skill if isinstance(skill, Model) else Model(skill)
        bound = skills.standalone(skill.header)
        if not bound:
            raise Parse("not a standalone skill: no record has base_dir_hash",
                        file=skill.files[0].path, section="header")
        base = self.base_key
        if bound[0]["base_dir_hash"] != base and not force:
            raise Parse("skill '%s' was cut from another base" % bound[0]["id"],
                        file=skill.files[0].path, section="header", want=base,
                        got=bound[0]["base_dir_hash"])
        return {name: skill.tensors.get(name, own) for name, own in self.tensors.items()}
