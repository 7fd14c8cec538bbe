#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every file that must be refused, with the code that the format gives it; made-up ones beside."""
import json
import os
import struct

import maker
import support
from support import BAD
from caisson_cmf import Bounds, CmfError, File, FileNotFound, Model, Parse, verify

FAULTS = support.read_json(os.path.join(BAD, "bad.json"))
HOSTILE = support.read_json(os.path.join(BAD, "hostile", "hostile.json"))
SETS = support.read_json(os.path.join(BAD, "shards", "shards.json"))
SECTIONS = {"dir": "directory", "tensor 0": "directory"}
CODES = {"UnknownDtype": "Parse"}  # decided: an unknown dtype is Parse, as the specification says


def is_refused(self, fault):
    path = os.path.join(BAD, fault["file"])
    problems = verify(path).problems
    self.assertLessEqual(len(problems), 2, [str(p) for p in problems])
    if fault["fails_at"] == "verify":
        code = "Hash"
        if fault["where"] not in ("header", "dir"):
            File(path)  # only these two are hashed while opening
    else:
        code = CODES.get(fault["error_class"], fault["error_class"])
    problem = problems[0]
    self.assertEqual(problem.code, code)
    self.assertIn(path, str(problem))
    where = fault["where"]
    if where.startswith("tensor ") and where != "tensor 0":
        self.assertIn(where.split()[1], str(problem))
    else:
        self.assertEqual(problem.section, SECTIONS.get(where, where))
    if fault["fails_at"] == "open" or where in ("header", "dir"):
        with self.assertRaises(type(problem)):
            Model(path)


@support.cases([(fault["file"], fault) for fault in FAULTS], is_refused)
class Bad(support.Case):
    def test_every_file_of_the_folder_is_in_the_list(self):
        names = {name for name in os.listdir(BAD) if name.endswith(".cmf")}
        self.assertEqual(names, {fault["file"] for fault in FAULTS})


def hostile_is_refused(self, fault):
    path = os.path.join(BAD, "hostile", fault["file"])
    if fault["file"].startswith("q8-row"):  # its size is right: only decoding needs a matrix
        model = Model(path)
        with self.assertRaises(Bounds):
            [tensor.values() for tensor in model.tensors.values()]
        return
    with self.assertRaises(Bounds) as caught:
        Model(path)
    self.assertIn(caught.exception.section, ("data", "directory"))
    self.assertEqual([p.code for p in verify(path).problems], ["Bounds"])


@support.cases([(fault["file"], fault) for fault in HOSTILE], hostile_is_refused)
class Hostile(support.Case):
    pass


def shard_set(self, fault):
    path = os.path.join(BAD, "shards", fault["open"])
    if fault["error_class"] is None or fault["set"] == "second-first":
        model = Model(path)
        self.assertEqual([os.path.basename(file.path) for file in model.files], fault["files"])
        return
    want = {"FileNotFound": FileNotFound, "Parse": Parse}[fault["error_class"]]
    with self.assertRaises(want):
        Model(path)
    for name in fault["files"]:  # each is sound alone
        self.assertTrue(verify(os.path.join(BAD, "shards", name)).valid)


@support.cases([(fault["set"], fault) for fault in SETS], shard_set)
class ShardSets(support.Case):
    def shard(self, name, no, count, *, arch=(), tensor="t"):
        data = maker.file([(tensor, 1, (4,), maker.NORM[3])],
                          maker.header(arch, shard={"no": no, "count": count}))
        return self.write(name, data)

    def test_swapped(self):
        self.shard("s-00001-of-00002.cmf", 2, 2, tensor="b")
        second = self.shard("s-00002-of-00002.cmf", 1, 2, tensor="a")
        with self.assertRaises(Parse) as caught:
            Model(second)
        self.assertEqual((caught.exception.want, caught.exception.got), ("1 of 2", "2 of 2"))

    def test_foreign(self):
        first = self.shard("s-00001-of-00002.cmf", 1, 2)
        self.shard("s-00002-of-00002.cmf", 2, 2, arch={"hidden_size": 8}, tensor="b")
        with self.assertRaisesRegex(Parse, "another model"):
            Model(first)

    def test_count_differs_from_the_name(self):
        with self.assertRaisesRegex(Parse, "file name"):
            Model(self.shard("s-00001-of-00002.cmf", 1, 3))

    def test_concatenated(self):
        first = self.shard("s-00001-of-00002.cmf", 1, 2)
        second = self.shard("s-00002-of-00002.cmf", 2, 2, tensor="b")
        both = support.read(first) + support.read(second)
        with self.assertRaisesRegex(Parse, "concatenated"):
            Model(self.write("s-00001-of-00002.cmf", both))
        with self.assertRaisesRegex(Parse, "concatenated"):
            Model(self.write("whole.cmf", both))

    def test_count_of_0_and_of_99999(self):
        with self.assertRaises(Parse):
            Model(self.shard("s-00000-of-00000.cmf", 0, 0))
        with self.assertRaises(FileNotFound) as caught:
            Model(self.shard("s-00001-of-99999.cmf", 1, 99999))
        self.assertIn("shard 2 of 99999", caught.exception.what)

    def test_one_shard_of_one_may_have_any_name(self):
        self.assertEqual(len(Model(self.shard("whole.cmf", 1, 1)).files), 1)


class Made(support.Case):
    """Faults that the golden files do not have."""

    def problems(self, data):
        return verify(self.write("made.cmf", data)).problems

    def refused(self, data, kind):
        with self.assertRaises(kind):
            File(self.write("made.cmf", data))
        self.assertTrue(self.problems(data))

    def test_maker_makes_sound_files(self):
        result = verify(self.write("made.cmf", maker.file()))
        self.assertEqual((result.problems, result.notes), ([], []))

    def test_no_file_and_a_folder(self):
        with self.assertRaises(FileNotFound):
            Model(self.scratch("absent.cmf"))
        self.assertEqual(verify(self.scratch("absent.cmf")).problems[0].code, "Io")
        with self.assertRaises(CmfError):
            Model(self.scratch())

    def test_known_key_twice(self):
        head = maker.header()
        self.refused(maker.file(head=head[:-1] + b', "version": 2}'), Parse)
        self.assertFalse(self.problems(maker.file(head=head[:-1] + b', "x": 1, "x": 2}')))

    def test_json_that_python_would_take(self):
        for text in (b', "rms_norm_eps": NaN', b', "x": Infinity', b', "x": 1e999',
                     b', "x": "\\ud800"', b', "x": ' + b"[" * 70 + b"]" * 70,
                     b', "x": ' + b"[" * 100000, b', "x": 01', b', "x": +1', b', "x": .5',
                     b', "x": "\x01"', b","):
            self.refused(maker.file(head=maker.header()[:-1] + text + b"}"), Parse)
        self.refused(maker.file(head=b"\xef\xbb\xbf" + maker.header()), Parse)

    def test_wrong_types(self):
        for arch in ({"hidden_size": -1}, {"hidden_size": True}, {"hidden_size": 1 << 64},
                     {"hidden_size": None}, {"layer_types": ["Other"]}, {"rms_norm_eps": "1"},
                     {"norm_style": "other"}, {"tie_word_embeddings": None}, {"moe": {}},
                     {"num_loops": 1 << 40}):
            self.refused(maker.file(head=maker.header(arch)), Parse)
        for keys in ({"skills": None}, {"shard": {"no": 1}}, {"version": "2"}):
            self.refused(maker.file(head=maker.header(**keys)), Parse)
        for arch in ({"moe": None}, {"rms_norm_eps": 1}, {"yarn": None}):
            self.assertFalse(self.problems(maker.file(head=maker.header(arch))))

    def test_overlaps(self):
        data = maker.file(vocab=b"{}")
        at = len(data)
        for places in ({"vocab": (64, 2)}, {"vocab": (130, 2)}, {"index": (at - 2, 2)},
                       {"vocab": (4096, 2)}, {"data": (4096, at - 4096)}, {"masks": (0, 1)}):
            self.refused(maker.file(vocab=b"{}", places=places), CmfError)
        shared = maker.directory([("a", 1, (4,), 0, 8, 0), ("b", 3, (2, 2), 0, 8, 0)])
        self.assertNotIn("Bounds", [p.code for p in self.problems(
            maker.file(head=None, directory=shared))])
        partly = maker.directory([("a", 1, (4,), 0, 8, 0), ("b", 1, (2,), 0, 4, 0)])
        self.refused(maker.file(directory=partly), Bounds)

    def test_tensors_without_a_blob(self):
        self.refused(maker.file(places={"data": (0, 0)}), Bounds)
        empty = maker.directory([("a", 0, (0, 3), 0, 0, 0)])
        path = self.write("made.cmf", maker.file(tensors=(), directory=empty))
        self.assertEqual(Model(path).values("a").shape, (0, 3))

    def test_lengths_of_0_1_and_max(self):
        for i in range(12):
            for value in (0, 1, (1 << 64) - 1):
                data = bytearray(maker.file(vocab=b"{}", index=b"\0" * 8))
                struct.pack_into("<Q", data, 16 + 8 * i, value)
                # Sound: the offset of an absent section; a section that is absent or shorter now.
                sound = i == 6 or (value == 0 and i in (7, 9, 11)) or (i, value) == (9, 1)
                self.assertEqual(not self.problems(bytes(data)), sound, (i, value))

    def test_hash_of_an_absent_section(self):
        self.refused(maker.file(head=maker.header(section_hashes={"masks": "0" * 16})), Parse)
        for places in ({"masks": (4096, 0)},):
            self.refused(maker.file(head=maker.header(section_hashes={"masks": "1"}),
                                    places=places), Parse)
            self.assertFalse(self.problems(maker.file(
                head=maker.header(section_hashes={"masks": "0"}), places=places)))

    def test_malformed_section_hash(self):
        for text in ("", "xyz", "0" * 17, "-1", "0x12", " 12"):
            head = maker.header(section_hashes={"vocab": text})
            self.assertEqual([p.code for p in self.problems(maker.file(head=head, vocab=b"{}"))],
                             ["Parse"], text)

    def test_mask_rows_of_absurd_dimensions(self):
        for arch in ({"num_layers": 1 << 19, "intermediate_size": 0, "num_attention_heads": 0},
                     {"num_layers": 1 << 20, "intermediate_size": 1 << 60}):
            section = maker.masks("a", [self.META], [b"\1" * 4])
            self.refused(maker.file(head=maker.header(arch), features=3, masks=section), Parse)

    META = {"task_id": 0, "name": "a", "sparsity": 0.5, "priority": "Normal"}

    def test_mask_meta(self):
        blob = b"\xff\x0f" * 2 + b"\7" * 2 + b"\3"
        sound = maker.masks("a", [self.META], [blob])
        self.assertFalse(self.problems(maker.file(features=3, masks=sound)))
        for change in ({"priority": "High"}, {"task_id": -1}, {"name": None}, {"quality": {}},
                       {"blob_off": (1 << 64) - 1}, {"blob_off": 1 << 20},
                       {"has_expert_fields": True}):
            section = maker.masks("a", [{**self.META, **change}], [blob])
            self.refused(maker.file(features=3, masks=section), Parse)
        for tail in (b"\xff\x1f\xff\x0f\7\7\3", b"\xff\x0f\xff\x0f\7\x0f\3",
                     b"\xff\x0f\xff\x0f\7\7\7"):
            section = maker.masks("a", [self.META], [tail])
            self.refused(maker.file(features=3, masks=section), Parse)

    def test_skill_descriptors_that_cannot_be_used(self):
        """The file is sound and the skill still replaces tensors; it cannot be routed to."""
        good = {"metric": "mse", "phi_layer": 0, "mean": "AAAAAAAAAAA=", "basis": "AAAAAAAAAAA="}
        for change in ({}, {"rank": 1}, {"mean": "AAAA"}, {"mean": "AAAAAAAAAH4="}, {"rank": 2},
                       {"basis": "***"}, {"phi_layer": 2}, {"holdout": "AAAA", "holdout_n": 1},
                       {"holdout_n": 1 << 60, "holdout": ""}, {"basis": "AAAA"}):
            skill = {"id": "s", "selection": {**good, **change}}
            tensors = [maker.NORM, ("skill.s." + maker.NORM[0],) + maker.NORM[1:]]
            data = maker.file(tensors, maker.header(skills=[skill]))
            result = verify(self.write("made.cmf", data))
            self.assertEqual(result.problems, [])
            self.assertEqual(len(result.notes), 0 if change in ({}, {"rank": 1}) else 1, change)
            model = Model(self.scratch("made.cmf"))
            self.assertIs(model.find(maker.NORM[0], "s"), model.tensors[tensors[1][0]])
            with self.assertRaises(Parse):
                model.find(maker.NORM[0], "other")
        for hidden in (1 << 62, 1 << 63):  # more than numpy's arrays can have
            head = maker.header({"hidden_size": hidden}, skills=[{"id": "s", "selection": good}])
            result = verify(self.write("made.cmf", maker.file(head=head)))
            self.assertEqual((result.problems, len(result.notes)), ([], 1))

    def test_notes(self):
        def notes(*args, **kw):
            result = verify(self.write("made.cmf", maker.file(*args, **kw)))
            self.assertEqual(result.problems, [])
            return " ".join(result.notes)
        self.assertIn("flags", notes(flags=7))
        self.assertIn("TENSOR_DIR", notes(features=0))
        self.assertIn("BINARY_MASKS", notes(features=3))
        self.assertIn("QUANT_2F", notes(features=5))
        self.assertIn("LOOP_MASKS", notes(features=1 | 1 << 5))
        self.assertIn("SKILL_FILE", notes(features=1 | 1 << 6))
        record = {"id": "x", "base_dir_hash": "0" * 16}
        self.assertIn("SKILL_FILE", notes(head=maker.header(skills=[record])))
        data = maker.file() + b"more"
        self.assertIn("4 bytes at offset", verify(self.write("made.cmf", data)).notes[0])

    def test_error_says_everything(self):
        data = bytearray(maker.file())
        data[-1] ^= 1
        path = self.write("made.cmf", bytes(data))
        (problem,) = verify(path).problems
        for word in (path, "data", "model.norm.weight", problem.want, problem.got, "4096"):
            self.assertIn(word, str(problem))
        self.assertEqual(set(problem.as_json()),
                         {"code", "section", "tensor", "offset", "want", "got", "what"})
        json.dumps(problem.as_json())


support.main()
