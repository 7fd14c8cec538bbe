#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""masks make, measure, remove: what they write is valid, is told, and runs (tests/python reads it too)."""
import glob
import hashlib
import os
import shutil

import tool
from tool import FAILED, TINY, USAGE


class Made(tool.Case):
    def setUp(self):
        super().setUp()
        self.model = self.path("m.cmf")
        self.text = self.path("t.txt")
        shutil.copyfile(TINY, self.model)
        with open(self.text, "w") as f:
            f.write("a small text that a small model reads, again and again. " * 8)

    def make(self, name, *args):
        return self.ok("masks", "make", self.model, name, "--text", self.text, *args)

    def masks(self):
        return {m["name"]: m for m in self.ok("masks", "list", self.model, "--json").json["masks"]}

    def test_a_mask_is_made_measured_and_removed(self):
        before = tool.read(self.model)
        self.assertIn("50.0 %", self.make("half", "--scattered", "--description", "a half").out)
        m = self.masks()["half"]
        self.assertEqual((m["task_id"], m["sparsity"], m["quality"], m["priority"], m["description"]),
                         (0, 0.5, None, "Normal", "a half"))
        self.assertTrue(self.ok("verify", self.model, "--json").json[0]["valid"])
        blob = tool.read(self.model)
        self.assertEqual(blob[128:len(before)], before[128:]) # grown, not rewritten
        eval_ = ("eval", self.model, "--tokens", "1,2,3", "--top", "4", "--json")
        dense = self.ok(*eval_)
        self.assertNotIn("nobody measured", dense.err) # it is not the default
        masked = self.ok(*eval_, "--task", "half")
        self.assertNotEqual(masked.json["positions"], dense.json["positions"])
        self.assertIn("nobody measured", masked.err)
        r = self.ok("masks", "measure", self.model, "half", "--text", self.text, "--json").json
        q = self.masks()["half"]["quality"]
        self.assertEqual((q["metric"], q["value"], q["baseline_dense"], q["n_samples"]),
                         ("ppl", r["value"], r["baseline_dense"], r["n_samples"]))
        self.assertEqual(q["dataset_sha256"], hashlib.sha256(tool.read(self.text)).hexdigest())
        for task, value in (("half", q["value"]), ("none", q["baseline_dense"])):
            ppl = self.ok("ppl", self.model, self.text, "--task", task, "--json").json
            self.assertEqual((ppl["ppl"], ppl["n_tokens"]), (value, q["n_samples"]))
        self.assertNotIn("nobody measured", self.ok(*eval_, "--task", "half").err)
        self.ok("masks", "remove", self.model, "half")
        self.assertEqual(self.masks(), {})
        self.assertEqual(self.ok(*eval_).json, dense.json)

    def test_names_that_could_not_be_called_are_refused(self):
        before = tool.read(self.model)
        for name in ("none", "", "bad\udcff"):
            self.fails(FAILED, "masks", "make", self.model, name, "--text", self.text)
        self.assertEqual(tool.read(self.model), before)

    def test_the_index_of_the_old_masks_goes(self):
        shutil.copyfile(os.path.join(tool.FILES, "tiny-index.cmf"), self.model)
        name = list(self.masks())[0]
        self.ok("masks", "remove", self.model, name)
        self.assertNotIn(name, self.masks())
        self.assertEqual(self.ok("info", self.model, "--json").json["sparse_index"], [])
        self.assertTrue(self.ok("verify", self.model, "--json").json[0]["valid"])

    def test_masks_of_shards_are_those_of_the_whole(self):
        self.ok("split", self.model, "-o", self.path("s.cmf"), "--shard-max-size", "60K")
        shards = sorted(glob.glob(self.path("s-*.cmf")))
        self.assertGreater(len(shards), 1)
        before = [tool.read(s) for s in shards]
        args = ("a", "--text", self.text, "--sparsity", 0.5, "--scattered")
        self.ok("masks", "make", self.model, *args)
        self.ok("masks", "make", shards[-1], *args)
        after = [tool.read(s) for s in shards]
        self.assertEqual(after[1:], before[1:])  # the first shard holds the masks
        self.assertEqual(after[0][128:len(before[0])], before[0][128:])
        run = ("-p", "hello", "--raw", "--temp", 0, "-n", 8, "--task", "a")
        self.assertEqual(self.ok("run", shards[0], *run).out, self.ok("run", self.model, *run).out)
        self.ok("masks", "measure", shards[1], "a", "--text", self.text)
        whole = self.path("whole.cmf")
        self.ok("merge", shards[0], "-o", whole)
        self.assertIsNotNone(self.ok("info", whole, "--json").json["masks"]["masks"][0]["quality"])
        self.ok("masks", "remove", shards[1], "a")
        for shard in shards:
            self.assertTrue(self.ok("verify", shard, "--json").json[0]["valid"])

    def test_names_and_the_default(self):
        self.make("a", "--sparsity", 0)
        self.make("b", "--head-sparsity", 0.5, "--default")
        self.assertEqual([m["task_id"] for m in self.masks().values()], [0, 1])
        self.assertIn("* b", self.ok("masks", "list", self.model).out)
        r = self.fails(FAILED, "masks", "make", self.model, "a", "--text", self.text)
        self.assertIn("--force", r.err)
        self.make("a", "--scattered", "--force")
        self.assertEqual((self.masks()["a"]["task_id"], self.masks()["a"]["sparsity"]), (0, 0.5))
        self.assertIn("a b", self.fails(FAILED, "masks", "remove", self.model, "c").err)
        self.assertIn("a b", self.fails(FAILED, "masks", "measure", self.model, "c", "--text",
                                        self.text).err)
        self.fails(USAGE, "masks", "make", self.model, "c")
        self.fails(USAGE, "masks", "make", self.model, "--text", self.text)
        self.fails(USAGE, "masks", "make", self.model, "c", "--text", self.text, "--sparsity", 1)


if __name__ == "__main__":
    tool.main()
