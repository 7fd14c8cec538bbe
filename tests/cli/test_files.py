#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""info, tensor, verify: what they say of good files, and that no bad file gets past them."""
import json
import os
import shutil
import random
import struct

import tool
from tool import FAILED, TINY, USAGE
from test_model import read_npy

SIDE = json.loads(tool.read(os.path.join(tool.FILES, "tiny-f32.json")))


class Info(tool.Case):
    def test_json(self):
        r = self.ok("info", TINY, "--json").json
        self.assertEqual(r["container"]["format"], "cmf")
        self.assertEqual(r["container"]["bytes"], SIDE["file_bytes"])
        self.assertEqual(r["container"]["directory_hash"], SIDE["stored_dir_hash"])
        self.assertEqual(r["features"], ["TENSOR_DIR"])
        self.assertEqual(r["quant_type"], "F32")
        self.assertEqual(r["arch"]["num_layers"], 2)
        self.assertEqual(r["tensors"]["n"], len(SIDE["tensors"]))
        self.assertEqual([d["dtype"] for d in r["tensors"]["by_dtype"]], ["f32"])
        self.assertEqual(r["chat"]["eos_token_ids"], [340, 342])
        self.assertEqual(r["provenance"]["tool"], "golden-writer")
        self.assertTrue(r["runs"])
        self.assertEqual(len(r["layers"]), 2)

    def test_human_form(self):
        out = self.ok("info", TINY).out
        for word in ("container", "features", "TENSOR_DIR", "arch", "hidden_size: 32", "tensors",
                     "tokenizer", "template", "provenance", "runs        yes"):
            self.assertIn(word, out)

    def test_equal_layers_are_shown_once(self):
        self.assertIn("layers      0-1\n", self.ok("info", TINY).out)

    def test_a_file_that_cannot_run_says_why(self):
        r = self.ok("info", os.path.join(tool.FILES, "tiny-all-dtypes.cmf"), "--json").json
        self.assertFalse(r["runs"])
        self.assertTrue(r["why_not"])
        self.assertIn("runs        no: ", self.ok("info", os.path.join(tool.FILES, "tiny-all-dtypes.cmf")).out)

    def test_every_golden_file_is_described(self):
        for name in sorted(os.listdir(tool.FILES)):
            # Two of them break rules that are ours: tail bits of masks, overlapping payloads.
            if name.endswith(".cmf") and name not in ("odd-mask-tail-bits.cmf", "odd-directory.cmf"):
                self.ok("info", os.path.join(tool.FILES, name), "--json").json
                self.ok("info", os.path.join(tool.FILES, name))


class Masks(tool.Case):
    NAMES = ("tiny-masks", "tiny-index", "tiny-moe", "tiny-loop", "tiny-loop-legacy-mask")

    def test_list_agrees_with_the_reference(self):
        for name in self.NAMES:
            want = json.loads(tool.read(os.path.join(tool.FILES, name + ".json")))
            r = self.ok("masks", "list", os.path.join(tool.FILES, name + ".cmf"), "--json").json
            masks = want["masks"]["masks"]
            self.assertEqual(r["default_task"], want["masks"]["default_task"])
            self.assertEqual(len(r["masks"]), len(masks))
            for m, w in zip(r["masks"], masks):
                for key in ("name", "task_id", "priority", "description", "parent"):
                    self.assertEqual(m[key], w[key], (name, key))
                self.assertEqual(m["quality"] is None, w["quality"] is None)
                n = len(m["layers"])
                self.assertEqual([x["on"] for x in m["layers"]], w["layer_gates"][:n])
                self.assertEqual([x["heads"] for x in m["layers"]], [len(x) for x in w["head_rows"]][:n])
                visits = len(m["layers"][0]["neurons"])
                neurons = [x["neurons"][v] for v in range(visits) for x in m["layers"]]
                self.assertEqual(neurons, [len(x["active"]) for x in w["ffn_rows"]][:len(neurons)])
                if w["expert_rows"] is not None:
                    self.assertEqual([x["experts"] for x in m["layers"]], [len(x) for x in w["expert_rows"]])

    def test_a_person_sees_names_and_layers(self):
        path = os.path.join(tool.FILES, "tiny-masks.cmf")
        self.assertIn("* general", self.ok("masks", "list", path).out)
        self.assertIn("neurons", self.ok("masks", "show", path, "code").out)
        self.assertIn("no masks", self.ok("masks", "list", os.path.join(tool.FILES, "tiny-f32.cmf")).out)
        self.assertIn("no mask", self.fails(FAILED, "masks", "show", path, "poetry").err)
        self.fails(USAGE, "masks", "paint", path)

    def test_the_default_task_is_active(self):
        path = os.path.join(tool.FILES, "tiny-masks.cmf")
        args = ("eval", path, "--tokens", "1,2,3", "--top", "8", "--json")
        default = self.ok(*args)
        self.assertIn("nobody measured", default.err)
        self.assertEqual(self.ok(*args, "--task", "general").json, default.json)
        self.assertNotEqual(self.ok(*args, "--task", "none").json, default.json)
        measured = self.ok(*args, "--task", "code")
        self.assertNotEqual(measured.json, default.json)
        self.assertNotIn("nobody measured", measured.err)
        poetry = self.fails(FAILED, *args, "--task", "poetry").err
        self.assertIn("general code", poetry)
        self.assertNotIn("masks make", poetry)
        none = os.path.join(tool.FILES, "tiny-f32.cmf")
        self.assertIn("masks make", self.fails(FAILED, "eval", none, "--tokens", "1", "--task", "a").err)


class SparseIndex(tool.Case):
    def test_info_shows_it(self):
        with open(os.path.join(tool.FILES, "tiny-index.json")) as f:
            want = [{"task_id": e["task_id"], "layer": e["layer_idx"], "groups": e["groups"],
                     "heads": e["heads"]} for e in json.load(f)["sparse_index"]]
        path = os.path.join(tool.FILES, "tiny-index.cmf")
        self.assertEqual(self.ok("info", path, "--json").json["sparse_index"], want)
        self.assertIn("deprecated", self.ok("info", path).out)
        self.assertEqual(self.ok("info", TINY, "--json").json["sparse_index"], [])


class Skills(tool.Case):
    PATH = os.path.join(tool.FILES, "tiny-skills.cmf")

    def test_info_lists_the_registry(self):
        skills = {s["id"]: s for s in self.ok("info", self.PATH, "--json").json["skills"]}
        self.assertEqual(sorted(skills), ["poem", "sql"])
        self.assertEqual((skills["sql"]["name"], skills["sql"]["tensors"]), ("SQL assistant", 3))
        self.assertEqual(skills["poem"]["input_mask_task"], "code")

    def test_a_skill_changes_the_answer_and_leaves_no_trace(self):
        args = ("eval", self.PATH, "--tokens", "1,2,3", "--top", "8", "--json")
        backbone = self.ok(*args).json
        self.assertNotEqual(self.ok(*args, "--skill", "sql").json, backbone)
        self.assertEqual(self.ok(*args, "--skill", "none").json, backbone)

    def test_what_a_skill_lacks_is_named(self):
        args = ("eval", self.PATH, "--tokens", "1,2,3")
        self.assertIn("poem sql", self.fails(FAILED, *args, "--skill", "prose").err)
        self.assertIn("input_mask_task", self.fails(FAILED, *args, "--skill", "poem").err)
        self.ok(*args, "--skill", "poem", "--task", "none")

    def test_a_skill_file_is_no_model(self):
        for name in ("tiny-skill-file", "tiny-skill-file-wrong-base"):
            r = self.fails(FAILED, "eval", os.path.join(tool.FILES, name + ".cmf"), "--tokens", "1")
            self.assertIn("it needs its base", r.err)


class Tensor(tool.Case):
    def test_list(self):
        r = self.ok("tensor", TINY, "--json").json
        self.assertEqual([t["name"] for t in r], [t["name"] for t in SIDE["tensors"]])
        for got, want in zip(r, SIDE["tensors"]):
            self.assertEqual(set(got), {"name", "dtype", "shape", "shard", "offset", "bytes", "hash"})
            self.assertEqual(got["shape"], want["shape"])
            self.assertEqual(got["dtype"], want["dtype"])
            self.assertEqual(got["bytes"], want["nbytes"])
            self.assertEqual(got["hash"], want["hash"])
        self.assertEqual(len(self.ok("tensor", TINY).out.splitlines()), len(r))

    def test_offsets_are_of_the_file(self):
        blob = tool.read(TINY)
        for t, side in zip(self.ok("tensor", TINY, "--json").json, SIDE["tensors"]):
            got = struct.unpack_from("<4f", blob, t["offset"])
            self.assertEqual(list(got), side["first_values"])

    def test_npy(self):
        side = SIDE["tensors"][2]
        path = self.path("t.npy")
        self.ok("tensor", TINY, side["name"], "--npy", path)
        shape, v = read_npy(path)
        self.assertEqual(list(shape), side["shape"])
        self.assertEqual(list(v[:4]), side["first_values"])

    def test_payloads_without_form_hide_no_other_damage(self):
        """Widths, pointers and counts that are wrong end no verify: each tensor is named."""
        path = self.path("m.cmf")
        shutil.copy(os.path.join(tool.FILES, "tiny-all-dtypes.cmf"), path)
        tensors = [t for t in self.ok("tensor", path, "--json").json if t["bytes"] > 0]
        with open(path, "r+b") as f:
            for t in tensors:
                f.seek(t["offset"])
                old = f.read(t["bytes"])
                f.seek(t["offset"])
                f.write(bytes(b ^ 0x81 for b in old[:1]) + old[1:-9] + b"\xff" * len(old[1:][-9:]))
        problems = self.fails(FAILED, "verify", path, "--json").json[0]["problems"]
        self.assertEqual({p["tensor"] for p in problems if p["code"] == "Hash"},
                         {t["name"] for t in tensors})
        self.assertIn("Bounds", {p["code"] for p in problems})

    def test_values_of_every_dtype(self):
        name = os.path.join(tool.FILES, "tiny-all-dtypes.cmf")
        side = json.loads(tool.read(name[:-4] + ".json"))
        n = 0
        for t in side["tensors"]:
            path = self.path(t["name"] + ".npy")
            r = tool.run("tensor", name, t["name"], "--npy", path)
            if r.rc != 0:
                self.assertIn("cannot decode", r.err, t)
                self.assertFalse(os.path.exists(path))
                continue
            n += 1
            self.assertEqual(list(read_npy(path)[1][:len(t["first_values"])]), t["first_values"], t)
        self.assertGreaterEqual(n, 8)

    def test_unknown_name(self):
        r = self.fails(FAILED, "tensor", TINY, "model.nope")
        self.assertIn("model.nope", r.err)

    def test_one_tensor_in_json(self):
        r = self.ok("tensor", TINY, SIDE["tensors"][1]["name"], "--json").json
        self.assertEqual([t["name"] for t in r], [SIDE["tensors"][1]["name"]])


class Verify(tool.Case):
    def test_valid_file(self):
        r = self.ok("verify", TINY, "--json").json
        self.assertEqual(r, [{"file": TINY, "valid": True, "problems": [], "notes": [],
                              "signed_by": None}])
        self.assertIn("valid", self.ok("verify", TINY).out)

    def test_flipped_tensor_byte_is_named(self):
        t = self.ok("tensor", TINY, "--json").json[3]
        path = tool.copy_tiny(self.path("bad.cmf"), flip=t["offset"] + 5)
        r = self.fails(FAILED, "verify", path, "--json").json
        self.assertEqual(len(r[0]["problems"]), 1)
        p = r[0]["problems"][0]
        self.assertFalse(r[0]["valid"])
        self.assertEqual(p["code"], "Hash")
        self.assertEqual(p["tensor"], t["name"])
        self.assertEqual((p["offset"], p["bytes"]), (t["offset"], t["bytes"]))
        self.assertEqual(p["want"], t["hash"])
        self.assertNotEqual(p["got"], t["hash"])
        out = self.fails(FAILED, "verify", path).out
        self.assertIn(t["name"], out)
        self.assertIn("[Hash]", out)

    def test_several_faults_are_all_told(self):
        tensors = self.ok("tensor", TINY, "--json").json
        path = tool.copy_tiny(self.path("bad.cmf"))
        blob = bytearray(tool.read(path))
        for t in tensors[::2]:
            blob[t["offset"]] ^= 1
        with open(path, "wb") as f:
            f.write(blob)
        r = self.fails(FAILED, "verify", path, "--json").json
        self.assertEqual([p["tensor"] for p in r[0]["problems"]], [t["name"] for t in tensors[::2]])

    def test_files_that_do_not_open(self):
        empty = self.path("empty.cmf")
        open(empty, "w").close()
        r = self.fails(FAILED, "verify", "--json", empty, self.path("absent.cmf"), TINY, tool.ROOT).json
        self.assertEqual([f["valid"] for f in r], [False, False, True, False])
        self.assertEqual(r[0]["problems"][0]["code"], "Bounds")
        self.assertEqual(r[1]["problems"][0]["code"], "Io")
        self.assertIn(os.strerror(2), r[1]["problems"][0]["message"])
        for f in r:
            for p in f["problems"]:
                self.assertTrue({"code", "section", "tensor", "offset", "bytes", "want", "got"} <= set(p))

    def test_not_a_cmf_file_shows_both_values(self):
        path = self.path("text.cmf")
        with open(path, "wb") as f:
            f.write(b"ABCD" * 64)
        p = self.fails(FAILED, "verify", "--json", path).json[0]["problems"][0]
        self.assertEqual((p["code"], p["offset"], p["got"]), ("InvalidMagic", 0, "ABCD"))
        self.assertTrue(p["want"].startswith("CMF"), p)

    def test_golden_bad_files(self):
        table = json.loads(tool.read(os.path.join(tool.BAD, "bad.json")))
        self.assertGreater(len(table), 20)
        paths = [os.path.join(tool.BAD, entry["file"]) for entry in table]
        result = self.fails(FAILED, "verify", "--json", *paths).json
        self.assertEqual([r["file"] for r in result], paths)
        for entry, r in zip(table, result):
            self.assertFalse(r["valid"], entry)
            self.assertTrue(r["problems"], entry)

    def test_bad_files_never_run(self):
        table = json.loads(tool.read(os.path.join(tool.BAD, "bad.json")))
        for entry in table:
            if entry["fails_at"] != "open":
                continue
            path = os.path.join(tool.BAD, entry["file"])
            self.fails(FAILED, "info", path)
            self.fails(FAILED, "tokenize", path, stdin=b"x")
            self.fails(FAILED, "eval", path, "--tokens", "1")


class Hostile(tool.Case):
    def test_truncated_files(self):
        n = os.path.getsize(TINY)
        for size in (0, 1, 4, 127, 128, 129, 500, 1024, 2000, 4095, 4096, 50000, n - 1):
            path = tool.copy_tiny(self.path("t.cmf"), size=size)
            for args in (["info", path], ["verify", path], ["tensor", path],
                         ["run", path, "x", "-n", "1"]):
                self.fails(FAILED, *args)

    def test_flipped_bytes_never_crash(self):
        rng = random.Random(1)
        for at in [rng.randrange(4096) for _ in range(60)]:
            path = tool.copy_tiny(self.path("t.cmf"), flip=at)
            r = tool.run("run", path, "x", "-n", "1")
            self.assertIn(r.rc, (0, 1), (at, r.err))

    def test_control_characters_of_a_file_name_are_not_echoed(self):
        path = tool.copy_tiny(self.path("a\033[31mb.cmf"), size=100)
        for cmd in ("info", "verify"):
            r = self.fails(FAILED, cmd, path)
            self.assertNotIn("\033[31m", r.out + r.err)

    def test_directory_and_other_files(self):
        other = self.path("x.bin")
        with open(other, "wb") as f:
            f.write(b"hello " * 1000)
        for cmd in (["info"], ["run"], ["tensor"]):
            self.fails(FAILED, cmd[0], self.dir, *(["x"] if cmd[0] == "run" else []))
            r = self.fails(FAILED, cmd[0], other, *(["x"] if cmd[0] == "run" else []))
            self.assertIn("x.bin", r.err)


if __name__ == "__main__":
    tool.main()
