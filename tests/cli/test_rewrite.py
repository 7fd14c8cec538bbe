#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compact, merge, split, requant, convert --shard-max-size, and commands over sharded models."""
import fcntl
import glob
import json
import os
import shutil
import stat
import struct

import tool
from test_convert import make_hf
from tool import FAILED, FILES, TINY, USAGE

GROWN = os.path.join(FILES, "tiny-grown.cmf")


def names(pattern):
    return sorted(os.path.basename(path) for path in glob.glob(pattern))


class Rewrite(tool.Case):
    def split(self, size="60K"):
        out = self.path("s.cmf")
        r = self.ok("split", TINY, "-o", out, "--shard-max-size", size, "--json").json
        self.assertEqual(r["files_before"], 1)
        self.assertTrue(os.path.exists(r["output"]), r["output"])
        return r["files_after"], sorted(glob.glob(self.path("s-*.cmf")))

    def test_compact_in_place(self):
        path = self.path("m.cmf")
        shutil.copyfile(GROWN, path)
        before = self.ok("tensor", path, "--json").json
        r = self.ok("compact", path, "--json").json
        self.assertEqual(r["bytes_before"], os.path.getsize(GROWN))
        self.assertEqual(r["bytes_after"], os.path.getsize(path))
        after = self.ok("tensor", path, "--json").json
        for a, b in zip(before, after):
            self.assertEqual([a[k] for k in ("name", "dtype", "shape", "bytes", "hash")],
                             [b[k] for k in ("name", "dtype", "shape", "bytes", "hash")])
        self.assertEqual(self.ok("verify", path, "--json").json[0]["notes"], [])
        self.assertEqual(names(self.path("m.cmf*")), ["m.cmf"])

    def test_compact_through_a_link(self):
        shutil.copyfile(GROWN, self.path("grown.cmf"))
        before = os.path.getsize(self.path("grown.cmf"))
        os.mkdir(self.path("d"))
        link = os.path.join(self.path("d"), "link.cmf")
        os.symlink("../grown.cmf", link)
        self.ok("compact", link)
        self.assertEqual(os.readlink(link), "../grown.cmf")
        self.assertLess(os.path.getsize(self.path("grown.cmf")), before)
        self.assertEqual(os.listdir(self.path("d")), ["link.cmf"])

    def test_a_private_file_stays_private(self):
        path = self.path("m.cmf")
        shutil.copyfile(GROWN, path)
        os.chmod(path, 0o600)
        self.ok("compact", path)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)

    def test_compact_waits_for_no_writer(self):
        path = self.path("m.cmf")
        shutil.copyfile(TINY, path)
        with open(path, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            r = self.fails(FAILED, "compact", path)
        self.assertIn("another program is writing", r.err)
        self.ok("compact", path)

    def test_split_and_merge(self):
        n, shards = self.split()
        self.assertEqual(len(shards), n)
        self.assertGreater(n, 2)
        for shard in shards:
            self.assertLessEqual(os.path.getsize(shard), 60000)
            self.assertTrue(self.ok("verify", shard, "--json").json[0]["valid"])
        for shard in shards[1:]:  # what belongs to the model as a whole is in the first (CMF 10)
            blob = tool.read(shard)
            at, n = struct.unpack_from("<QQ", blob, 0x10)
            head = json.loads(blob[at:at + n])
            self.assertIsNone(head["tokenizer_config"])
            self.assertEqual(head.get("skills", []), [])
            self.assertEqual(struct.unpack_from("<QQQQQQ", blob, 0x40), (0,) * 6)
        answer = self.ok("run", TINY, "a", "-n", 4, "--temp", 0).out
        self.assertEqual(self.ok("run", shards[1], "a", "-n", 4, "--temp", 0).out, answer)
        info = self.ok("info", shards[-1], "--json").json["container"]
        self.assertEqual([os.path.basename(s["file"]) for s in info["shards"]], names(self.path("s-*")))
        self.ok("merge", shards[1], "-o", self.path("m.cmf"))
        self.ok("compact", TINY, "-o", self.path("c.cmf"))
        self.assertEqual(tool.read(self.path("m.cmf")), tool.read(self.path("c.cmf")))
        self.assertIn("exists", self.fails(FAILED, "merge", shards[0], "-o", self.path("m.cmf")).err)
        self.ok("merge", shards[0], "-o", self.path("m.cmf"), "--force")

    def test_compact_keeps_a_shard_a_shard(self):
        _, shards = self.split()
        self.ok("compact", shards[1])
        self.ok("info", shards[1])
        self.ok("compact", shards[1], "-o", self.path("all.cmf"))
        self.assertNotIn("shards", self.ok("info", self.path("all.cmf"), "--json").json["container"])

    def test_compact_drops_no_file_that_is_joined_to_another(self):
        _, shards = self.split()
        joined = self.path("all.cmf")
        with open(joined, "wb") as f:
            f.write(b"".join(tool.read(s) for s in shards))
        before = tool.read(joined)
        self.assertIn("another file is joined", self.fails(FAILED, "compact", joined).err)
        self.assertEqual(tool.read(joined), before)

    def test_a_missing_shard_is_named(self):
        _, shards = self.split()
        os.unlink(shards[1])
        for command in (("info", shards[0]), ("run", shards[0], "a"),
                        ("merge", shards[2], "-o", self.path("m.cmf"))):
            r = self.fails(FAILED, *command)
            self.assertIn(os.path.basename(shards[1]), r.err)
            self.assertIn("lie in one folder", r.err)  # and what to do about it
        r = self.ok("verify", shards[0], "--json").json[0]  # alone it is valid
        self.assertTrue(r["valid"])
        self.assertIn(os.path.basename(shards[1]), r["notes"][0]["message"])

    def test_convert_makes_shards(self):
        source = make_hf(self.path("hf"))
        one, cut = self.path("one.cmf"), self.path("cut.cmf")
        self.ok("convert", source, "-o", one)
        r = self.ok("convert", source, "-o", cut, "--shard-max-size", "40K")
        self.assertFalse(os.path.exists(cut))
        shards = sorted(glob.glob(self.path("cut-*.cmf")))
        self.assertGreater(len(shards), 1)
        self.assertIn("%s and %d more file" % (shards[0], len(shards) - 1), r.out)
        self.assertIn(shards[0], self.fails(FAILED, "info", cut).err)  # what he may have meant
        self.ok("merge", shards[0], "-o", self.path("m.cmf"))
        listed = [[t[k] for k in ("name", "dtype", "shape", "hash")]
                  for t in self.ok("tensor", one, "--json").json]
        self.assertEqual([[t[k] for k in ("name", "dtype", "shape", "hash")]
                          for t in self.ok("tensor", self.path("m.cmf"), "--json").json], listed)
        r = self.fails(FAILED, "convert", source, "-o", cut, "--shard-max-size", "40K")
        self.assertIn("exists", r.err)
        bytes_before = [tool.read(s) for s in shards]
        self.ok("convert", source, "-o", cut, "--shard-max-size", "40K", "--force")
        self.assertEqual([tool.read(s) for s in shards], bytes_before)  # the same, always

    def test_each_shard_is_signed_alone(self):
        _, shards = self.split()
        key = self.ok("keygen", self.path("k")).out.strip()
        self.ok("sign", *shards, "--key", self.path("k"))
        run = ("run", shards[0], "a", "-n", 1, "--temp", 0, "--require-signature", key)
        self.ok(*run)
        os.unlink(shards[1] + ".sig")
        self.assertIn(os.path.basename(shards[1]), self.fails(FAILED, *run).err)

    def test_requant_in_place(self):
        path, other = self.path("m.cmf"), self.path("q.cmf")
        shutil.copyfile(TINY, path)
        before = tool.read(path)
        rules = ("--tensor", "*.mlp.*=q8_row", "--tensor", "lm_head.*=f16")
        with open(path, "rb") as reader:  # who has it open keeps what he opened
            self.ok("requant", path, *rules)
            self.assertEqual(reader.read()[128:len(before)], before[128:])
        self.ok("quantize", TINY, "-o", other, *rules)
        self.assertEqual(tool.run("diff", path, other).rc, 0)
        self.ok("verify", path)
        self.ok("compact", path)
        self.ok("compact", other)
        self.assertEqual(tool.read(path), tool.read(other))
        self.assertLess(len(tool.read(path)), len(before))

    def test_requant_that_changes_nothing_for_nobody(self):
        path = self.path("m.cmf")
        shutil.copyfile(TINY, path)
        before = tool.read(path)
        self.fails(USAGE, "requant", path)
        self.fails(FAILED, "requant", path, "--tensor", "model.norm.weight=q8_row")  # no matrix
        with open(path, "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertIn("another program", self.fails(FAILED, "requant", path, "--quant", "f16").err)
        self.assertEqual(tool.read(path), before)

    def test_requant_of_shards(self):
        _, shards = self.split()
        self.assertGreater(len(shards), 1)
        before = [tool.read(s) for s in shards]
        whole, other = self.path("m.cmf"), self.path("q.cmf")
        rules = ("--tensor", "*.mlp.*=q8_row", "--tensor", "lm_head.*=f16", "--quant", "q4_block")
        self.ok("requant", shards[1], *rules)
        for old, shard in zip(before, shards):
            self.assertEqual(tool.read(shard)[128:len(old)], old[128:])
            self.ok("verify", shard)
        self.ok("quantize", TINY, "-o", other, *rules)
        self.assertEqual(tool.run("diff", shards[0], other).rc, 0)
        self.ok("requant", shards[0], *rules)  # what has its type already is left alone
        for shard in shards:
            self.ok("compact", shard)
        self.ok("merge", shards[0], "-o", whole)
        self.assertEqual(tool.run("diff", whole, other).rc, 0)
        with open(shards[-1], "rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.assertIn("another program",
                          self.fails(FAILED, "requant", shards[0], "--quant", "f16").err)

    def test_quantize_cuts_into_shards(self):
        one, cut = self.path("one.cmf"), self.path("cut.cmf")
        self.ok("quantize", TINY, "-o", one, "--quant", "q8_row")
        text = self.path("text")
        with open(text, "w") as f:
            f.write("a small text that a small model reads, again and again. " * 8)
        r = self.ok("quantize", TINY, "-o", cut, "--quant", "q8_row", "--shard-max-size", "40K", "--eval",
                    text, "--json").json
        shards = sorted(glob.glob(self.path("cut-*.cmf")))
        self.assertGreater(len(shards), 1)
        self.assertTrue(all(os.path.getsize(s) <= 40000 for s in shards))
        self.assertEqual((r["file"], r["files"], r["bytes"]),
                         (shards[0], len(shards), sum(map(os.path.getsize, shards))))
        self.assertGreater(r["eval"]["n_tokens"], 0)
        self.assertEqual(tool.run("diff", one, shards[1]).rc, 0)
        again = self.path("again.cmf")  # shards in, shards out
        self.ok("quantize", shards[0], "-o", again, "--quant", "q4_block", "--shard-max-size", "30K")
        for shard in sorted(glob.glob(self.path("again-*.cmf"))):
            self.ok("verify", shard)
        self.ok("run", self.path("again-00001-of-%05d.cmf" % len(glob.glob(self.path("again-*.cmf")))),
                "hello", "-n", 2, "--temp", 0)

    def test_sizes(self):
        for size in ("", "0", "1.5G", "-1", "10T", "99999999999999999999", "20000000000G"):
            self.fails(USAGE, "split", TINY, "-o", self.path("x.cmf"), "--shard-max-size=" + size)
        for size, n in (("1000000", 1), ("1M", 1), ("1MiB", 1), ("1G", 1)):
            self.assertEqual(self.split(size)[0], n)
            os.unlink(self.path("s.cmf"))
        self.fails(USAGE, "split", TINY, "-o", self.path("x.cmf"))
        self.fails(USAGE, "merge", TINY)


if __name__ == "__main__":
    tool.main()
