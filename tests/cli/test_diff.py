#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""header, extract and diff."""
import json
import os
import shutil
import struct

import tool
from tool import FAILED, FILES, OK, TINY, USAGE

SIDE = json.loads(tool.read(os.path.join(FILES, "tiny-f32.json")))
TROUBLE = 2


def golden(name):
    return os.path.join(FILES, name)


def section(path, field):
    """The bytes that the envelope's pair at `field` points at."""
    blob = tool.read(path)
    off, n = struct.unpack_from("<QQ", blob, field)
    return blob[off:off + n]


class Header(tool.Case):
    def test_raw_and_pretty(self):
        raw = self.ok("header", TINY, "--json").raw
        self.assertEqual(raw, section(TINY, 0x10) + b"\n")
        pretty = self.ok("header", TINY).out
        self.assertEqual(json.loads(pretty), json.loads(raw))
        self.assertGreater(pretty.count("\n"), 20)

    def test_of_shards_it_is_the_first(self):
        r = self.ok("header", golden("tiny-shard-00003-of-00003.cmf"), "--json").json
        self.assertEqual(r["shard"], {"no": 1, "count": 3})


class Extract(tool.Case):
    def test_sections(self):
        for name, field in (("header", 0x10), ("directory", 0x20), ("masks", 0x40),
                            ("vocab", 0x50)):
            out = self.path(name)
            path = golden("tiny-masks.cmf")
            self.ok("extract", path, "--section", name, "-o", out)
            self.assertEqual(tool.read(out), section(path, field), name)

    def test_every_tensor(self):
        blob = tool.read(TINY)
        for t in self.ok("tensor", TINY, "--json").json:
            self.ok("extract", TINY, t["name"], "-o", self.path("t"))
            self.assertEqual(tool.read(self.path("t")), blob[t["offset"]:t["offset"] + t["bytes"]])

    def test_what_is_not_there(self):
        out = self.path("x")
        self.fails(FAILED, "extract", TINY, "--section", "index", "-o", out)
        self.fails(FAILED, "extract", TINY, "nobody", "-o", out)
        self.assertFalse(os.path.exists(out))
        self.fails(USAGE, "extract", TINY, "-o", out)
        self.fails(USAGE, "extract", TINY, "model.norm.weight")
        self.fails(USAGE, "extract", TINY, "model.norm.weight", "--section", "vocab", "-o", out)

    def test_what_is_there_stays_until_the_new_file_is_whole(self):
        model, out, link = self.path("m.cmf"), self.path("out"), self.path("link")
        shutil.copy(TINY, model)
        with open(out, "w") as f:
            f.write("precious")
        os.symlink(model, link)
        before, name = tool.read(model), "model.norm.weight"
        for args in (("extract", model, "nobody", "-o", out),
                     ("extract", model, "--section", "index", "-o", out),
                     ("eval", model, "--tokens", "1,99999", "--npy", out),
                     ("extract", model, name, "-o", model), ("extract", model, name, "-o", link),
                     ("tensor", model, name, "--npy", model),
                     ("eval", model, "--tokens", "1,2", "--npy", link)):
            self.fails(FAILED, *args)
            self.assertEqual((tool.read(out), tool.read(model)), (b"precious", before), args)
        self.assertEqual(sorted(os.listdir(self.dir)), ["link", "m.cmf", "out"])
        os.chmod(out, 0o640)
        self.ok("extract", model, name, "-o", out)
        self.assertNotEqual(tool.read(out), b"precious")
        self.assertEqual(os.stat(out).st_mode & 0o777, 0o640)


class Diff(tool.Case):
    def diff(self, a, b, rc, *more):
        r = tool.run("diff", a, b, "--json", *more)
        self.assertEqual(r.rc, rc, r.err)
        d = r.json
        self.assertEqual(d["equal"], rc == OK)
        return d

    def test_layout_is_no_difference(self):
        self.ok("compact", TINY, "-o", self.path("c.cmf"))
        self.ok("split", TINY, "-o", self.path("s.cmf"), "--shard-max-size", "60K")
        shard = sorted(n for n in os.listdir(self.dir) if n.startswith("s-"))[1]
        for other in (TINY, self.path("c.cmf"), self.path(shard)):
            d = self.diff(TINY, other, OK)
            self.assertEqual(d["tensors"]["same"], len(SIDE["tensors"]))
            self.assertEqual(d["tensors"]["shared_bytes"], d["tensors"]["same_bytes"])

    def test_a_changed_value_is_measured(self):
        path = self.path("m.cmf")
        shutil.copyfile(TINY, path)
        t = next(t for t in self.ok("tensor", TINY, "--json").json
                 if t["dtype"] == "f32" and len(t["shape"]) == 2)
        blob = bytearray(tool.read(path))
        (old,) = struct.unpack_from("<f", blob, t["offset"] + 8)
        struct.pack_into("<f", blob, t["offset"] + 8, old + 1.5)
        (new,) = struct.unpack_from("<f", blob, t["offset"] + 8)
        with open(path, "wb") as f:
            f.write(blob)
        self.ok("diff", TINY, path)  # the directory says that it is the same: verify says it is not
        self.reseal(path, t["name"], blob)
        d = self.diff(TINY, path, FAILED)
        (changed,) = d["tensors"]["changed"]
        self.assertEqual(changed["name"], t["name"])
        self.assertEqual(changed["values"]["differ"], 1)
        self.assertEqual(changed["values"]["max_abs"], new - old)
        self.assertEqual(changed["values"]["max_rel"],
                         (new - old) / max(abs(old), abs(new)))
        self.assertIsNone(self.diff(TINY, path, FAILED, "--no-values")["tensors"]["changed"][0]["values"])
        self.assertIn(t["name"], tool.run("diff", TINY, path).out)

    def reseal(self, path, name, blob):
        """Another stored hash of the tensor, and no hash of the directory."""
        off, _ = struct.unpack_from("<QQ", blob, 0x20)
        count, pool = struct.unpack_from("<QQ", blob, off)
        for i in range(count):
            at = off + 16 + 56 * i
            name_off, name_len = struct.unpack_from("<IH", blob, at)
            start = off + pool + name_off
            if blob[start:start + name_len].decode() == name:
                blob[at + 48] ^= 1
        struct.pack_into("<Q", blob, 0x78, 0)
        with open(path, "wb") as f:
            f.write(blob)

    def test_other_models(self):
        d = self.diff(TINY, golden("tiny-masks.cmf"), FAILED)
        self.assertIn("masks", [s["name"] for s in d["sections"]])
        d = self.diff(golden("tiny-f32.cmf"), golden("tiny-moe.cmf"), FAILED)
        self.assertTrue(d["tensors"]["only_a"] and d["tensors"]["only_b"])
        self.assertIn("arch.moe", [h["key"] for h in d["header"]])

    def test_trouble_has_a_code_of_its_own(self):
        self.fails(TROUBLE, "diff", TINY, self.path("absent.cmf"))
        self.fails(TROUBLE, "diff", self.path("absent.cmf"), TINY)
        self.fails(USAGE, "diff", TINY)


if __name__ == "__main__":
    tool.main()
