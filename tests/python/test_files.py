#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole files: everything that the reference's answers say of them, and nothing else."""
import os

import support  # first: without numpy it skips the whole program
import numpy as np

from support import FILES
from caisson_cmf import (DTYPES, Bounds, Model, Parse, UnsupportedFeature, hash64, skills, verify)
from caisson_cmf.ranges import unused

ANSWERS = {name[:-5]: support.read_json(os.path.join(FILES, name))
           for name in sorted(os.listdir(FILES))
           if name.endswith(".json") and name != "tiny-tokenizer.json"}
# Two files that the reference opens and we do not: partly overlapping payloads, tail bits of masks.
REFUSED = {"odd-directory": Bounds, "odd-mask-tail-bits": Parse}


def files_of(answer):
    names = answer["file"] if isinstance(answer["file"], list) else [answer["file"]]
    return [os.path.join(FILES, name) for name in names]


def reads_as_the_answer(self, name):
    answer = ANSWERS[name]
    if name in REFUSED:
        with self.assertRaises(REFUSED[name]):
            Model(files_of(answer)[0])
        return
    model = Model(files_of(answer)[0])
    first = model.files[0]
    sizes = [len(file.data) for file in model.files]
    self.assertEqual(sizes if len(sizes) > 1 else sizes[0], answer["file_bytes"])
    self.assertEqual(first.envelope.features, answer["required_features"])
    self.assertEqual("%016x" % first.envelope.directory_hash, answer["stored_dir_hash"])
    self.assertEqual([len(model.vocab) or None, "%016x" % hash64(model.vocab) if model.vocab
                      else None], [answer["vocab_bytes"], answer["vocab_hash64"]])
    self.assertEqual(sum(t.entry.elements for t in model.tensors.values() if len(t.shape) > 1),
                     answer["total_params_ndim_ge_2"])
    tensors_agree(self, model, answer["tensors"])
    agrees(self, model.header, answer["header"], "header")
    masks_agree(self, model, answer.get("masks"))
    index = [entry._asdict() for entry in model.index] if model.index is not None else None
    self.assertEqual(index, answer.get("sparse_index"))
    skills_agree(self, model, answer.get("skills", []))
    for path in files_of(answer):
        self.assertEqual(verify(path).problems, [])
    layout_agrees(self, first, answer)


def tensors_agree(self, model, want):
    self.assertEqual(list(model.tensors), [t["name"] for t in want])
    for tensor, answer in zip(model.tensors.values(), want):
        entry = tensor.entry
        self.assertEqual(
            {"name": entry.name, "dtype": tensor.dtype, "shape": list(entry.shape),
             "off": entry.off, "nbytes": entry.nbytes, "hash": "%016x" % entry.hash},
            {key: answer[key] for key in ("name", "dtype", "shape", "off", "nbytes", "hash")})
        if "shard_no" in answer:
            self.assertIs(tensor.file, model.files[answer["shard_no"] - 1])
        self.assertEqual("%016x" % hash64(tensor.payload()), answer["hash"])
        if "decoded_f32_hash64" in answer:
            values = tensor.values()
            self.assertEqual(values.shape, entry.shape)
            self.assertEqual("%016x" % hash64(values), answer["decoded_f32_hash64"], entry.name)
            self.assertEqual(values.reshape(-1)[:4].tolist(), answer["first_values"])
        elif DTYPES[entry.dtype].decode is None:
            with self.assertRaises(UnsupportedFeature):
                tensor.values()


def agrees(self, got, want, path):
    """Every key of the answer; keys that it leaves out hold their defaults."""
    for key, value in want.items():
        if isinstance(value, dict) and isinstance(got[key], dict):
            agrees(self, got[key], value, path + "." + key)
        elif key == "skills":
            for a, b in zip(got[key], value):
                agrees(self, a, b, path + ".skills")
        else:
            self.assertEqual(got[key], value, path + "." + key)
    left_out = set(got) - set(want)
    defaults = (None, [], 1, 1.0, False, "silu")
    self.assertEqual([key for key in left_out if got[key] not in defaults], [], path)


def masks_agree(self, model, want):
    self.assertEqual(model.masks is None, want is None)
    if want is None:
        return
    catalog = model.masks
    self.assertEqual(catalog.default_task, want["default_task"])
    self.assertEqual(catalog.fallback.name, want["start_mask"])
    self.assertEqual(len(catalog.masks), len(want["masks"]))
    for mask, answer in zip(catalog.masks, want["masks"]):
        for key in ("task_id", "name", "description", "parent", "priority", "has_hot_pack"):
            self.assertEqual(mask.meta[key], answer[key])
        self.assertAlmostEqual(mask.meta["sparsity"], answer["sparsity"], 6)
        if answer["quality"] is None:
            self.assertIsNone(mask.meta["quality"])
        else:
            self.assertEqual(mask.meta["quality"]["metric"], answer["quality"]["metric"])
            self.assertAlmostEqual(mask.meta["quality"]["value"], answer["quality"]["value"], 6)
        visits = range(model.header.visits)
        self.assertEqual([np.packbits(mask.ffn_of(v), bitorder="little").tobytes().hex()
                          for v in visits], [row["hex"] for row in answer["ffn_rows"]])
        self.assertEqual([np.flatnonzero(mask.ffn_of(v)).tolist() for v in visits],
                         [row["active"] for row in answer["ffn_rows"]])
        self.assertEqual([mask.gate_of(v) for v in visits], answer["layer_gates"])
        self.assertEqual([np.flatnonzero(row).tolist() for row in mask.heads],
                         answer["head_rows"])
        experts = None if mask.experts is None else [np.flatnonzero(row).tolist()
                                                     for row in mask.experts]
        self.assertEqual(experts, answer["expert_rows"])


def skills_agree(self, model, want):
    self.assertEqual(list(model.skills), [skill["id"] for skill in want])
    for answer in want:
        skill = model.skills[answer["id"]]
        self.assertEqual(list(skill.replaces.values()), answer["tensors"])
        selection = answer.get("selection")
        descriptor = skills.descriptor(skill, model.header)
        self.assertEqual(descriptor is None, selection is None)
        if selection is None:
            continue
        for key in ("metric", "phi_layer", "err_mean", "err_std"):
            self.assertEqual(getattr(descriptor, key), selection.get(key))
        self.assertEqual(len(descriptor.basis), selection["rank"])
        for key in ("mean", "basis", "holdout"):
            self.assertEqual(getattr(descriptor, key).reshape(-1).tolist(),
                             selection.get(key, []))
        for replaced, name in skill.replaces.items():
            self.assertIs(model.find(replaced, skill.id), model.tensors[name])


def layout_agrees(self, file, answer):
    for name, (offset, length) in answer.get("sections_offset_length", {}).items():
        section = file.envelope.sections["directory" if name == "dir" else name]
        self.assertEqual((section.offset if length else 0, section.length), (offset, length))
    gaps = unused(file.envelope, file.located, len(file.data))
    for start, length in answer.get("dead_ranges_offset_length", []):
        self.assertTrue(any(a <= start and start + length <= b for a, b in gaps), (start, length))


@support.cases([(name, name) for name in ANSWERS], reads_as_the_answer)
class Files(support.Case):
    def test_reading_instead_of_mapping(self):
        mapped, read = Model(support.TINY), Model(support.TINY, use_mmap=False)
        self.assertIsInstance(read.files[0].data, bytes)
        for name in mapped.tensors:
            self.assertTrue(support.same_bits(mapped.values(name), read.values(name)))


class SkillFile(support.Case):
    ANSWER = ANSWERS["tiny-skill-file"]

    def test_on_its_base(self):
        base = Model(os.path.join(FILES, self.ANSWER["base_file"]))
        skill = Model(os.path.join(FILES, self.ANSWER["file"]))
        self.assertTrue(skill.is_standalone_skill)
        self.assertFalse(base.is_standalone_skill)
        applied = base.with_skill_file(skill)
        self.assertEqual(
            [{"name": name, "dtype": t.dtype, "hash": "%016x" % t.entry.hash}
             for name, t in applied.items()],
            self.ANSWER["tensors_after_apply_by_the_documented_rules"])

    def test_on_another_base(self):
        base = Model(support.TINY)
        skill = os.path.join(FILES, "tiny-skill-file-wrong-base.cmf")
        with self.assertRaises(Parse) as caught:
            base.with_skill_file(skill)
        self.assertEqual(caught.exception.want, ANSWERS["tiny-f32"]["stored_dir_hash"])
        self.assertEqual(len(base.with_skill_file(skill, force=True)), len(base.tensors))
        with self.assertRaises(Parse):
            base.with_skill_file(support.TINY)


support.main()
