#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quantize: another .cmf of a .cmf. The right bytes come from convert, which the golden codecs check:
a file in f32 quantized must hold the payloads that the source gives directly."""
import json
import os
import signal
import struct
import subprocess
import time

import tool
from test_convert import make_hf
from tool import FAILED, FILES, TINY, USAGE

MATRIX_TYPES = ("q8_row", "q8_2f", "q4_block", "q4_tiled", "q4tp", "vbit", "vbit_ro", "q1", "q1s",
                "q1t")


def sections(path):
    """header JSON and the raw bytes of masks and vocab."""
    blob = tool.read(path)
    at = struct.unpack_from("<12Q", blob, 0x10)
    parts = [blob[at[2 * i]:at[2 * i] + at[2 * i + 1]] for i in range(6)]
    return json.loads(parts[0]), parts[3], parts[4], parts[5]


def without_nulls(value):
    """Of arch: an absent key and a null mean the same."""
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if v is not None}
    return value


class Quantize(tool.Case):
    def setUp(self):
        super().setUp()
        self.out = self.path("out.cmf")

    def tensors(self, path):
        return {t["name"]: t for t in self.ok("tensor", path, "--json").json}

    def test_payloads_are_those_of_convert(self):
        source, exact = make_hf(self.path("hf")), self.path("f32.cmf")
        self.ok("convert", source, "-o", exact, "--quant", "f32")
        for t in MATRIX_TYPES:
            direct = self.path("direct.cmf")
            self.ok("convert", source, "-o", direct, "--quant", t, "-f")
            self.ok("quantize", exact, "-o", self.out, "--quant", t, "-f")
            self.ok("verify", self.out)
            a, b = self.tensors(direct), self.tensors(self.out)
            self.assertEqual(set(a), set(b))
            for name in a:
                if len(a[name]["shape"]) == 2:
                    self.assertEqual((a[name]["dtype"], a[name]["hash"]),
                                     (b[name]["dtype"], b[name]["hash"]), name)
                else:  # norms stay as they were
                    self.assertEqual(b[name]["dtype"], "f32")
            self.ok("run", self.out, "Hello", "-n", 2, "--temp", 0)

    def test_everything_else_is_kept(self):
        for name in ("tiny-masks", "tiny-skills", "tiny-moe", "tiny-loop", "tiny-index",
                     "odd-json-style", "odd-minimal", "odd-no-tensors", "tiny-skill-file"):
            path = os.path.join(FILES, name + ".cmf")
            self.ok("quantize", path, "-o", self.out, "--quant", "q4_block", "-f")
            self.ok("verify", self.out)
            was, masks, vocab, _ = sections(path)
            now, new_masks, new_vocab, index = sections(self.out)
            self.assertEqual((masks, vocab, b""), (new_masks, new_vocab, index), name)
            ours = ("caisson.tensor_digests", "caisson.section_digests", "section_hashes",
                    "quant_type")
            for key in set(was) | set(now):
                if key not in ours:
                    self.assertEqual(without_nulls(was.get(key)), without_nulls(now.get(key)),
                                     "%s: %s" % (name, key))
            self.assertEqual(now["quant_type"], "Q4_BLOCK")
            a, b = self.tensors(path), self.tensors(self.out)
            self.assertEqual(list(a), list(b))
            for t in a:  # skills and experts as everything else; routers and vectors stay
                matrix = len(a[t]["shape"]) == 2 and not t.endswith("mlp.gate.weight") and \
                    not t.endswith("shared_expert_gate.weight")
                if not matrix:
                    self.assertEqual(a[t]["hash"], b[t]["hash"], t)
                else:
                    self.assertEqual(b[t]["dtype"], "q4_block", t)

    def test_only_what_a_rule_names_changes(self):
        path = os.path.join(FILES, "tiny-skills.cmf")
        self.ok("quantize", path, "-o", self.out, "--tensor", "lm_head.*=q4_tiled")
        a, b = self.tensors(path), self.tensors(self.out)
        self.assertEqual([t for t in a if a[t]["hash"] != b[t]["hash"]], ["lm_head.weight"])
        self.assertEqual(sections(path)[0]["quant_type"], sections(self.out)[0]["quant_type"])

    def test_shards_become_one_file(self):
        shard = os.path.join(FILES, "tiny-shard-00002-of-00003.cmf")
        self.ok("quantize", shard, "-o", self.out, "--quant", "q8_row")
        self.assertNotIn("shard", sections(self.out)[0])
        self.assertEqual(set(self.tensors(shard)), set(self.tensors(self.out)))

    def test_bits_reach_the_widths(self):
        sizes = []
        for bits in (3, 4, 5, 6, 8):
            r = self.ok("quantize", TINY, "-o", self.out, "--quant", "vbit", "--bits", bits, "-f",
                        "--json").json
            matrices = [t for t in r["tensors"] if t["to"] == "vbit"]
            self.assertTrue(all(t["bits_per_weight"] == 8 * t["bytes"] / (t["shape"][0] * t["shape"][1])
                                for t in matrices))
            sizes.append(r["bits_per_weight"])
        self.assertEqual(sizes, sorted(sizes))
        again = self.path("again.cmf")  # the same type, other widths
        self.ok("quantize", self.out, "-o", again, "--quant", "vbit", "--bits", 3)
        self.assertLess(os.path.getsize(again), os.path.getsize(self.out))
        copy = self.path("copy.cmf")  # nothing is asked for: nothing is lost
        r = self.ok("quantize", again, "-o", copy, "--quant", "vbit", "--json").json
        self.assertTrue(all(t["relative_error"] == 0 for t in r["tensors"]))
        self.assertEqual({n: t["hash"] for n, t in self.tensors(again).items()},
                         {n: t["hash"] for n, t in self.tensors(copy).items()})

    def test_eval_scores_both_models(self):
        text = self.path("text.txt")
        with open(text, "w") as f:
            f.write("The quick brown fox jumps over the lazy dog. " * 3)
        r = self.ok("quantize", TINY, "-o", self.out, "--quant", "q4_tiled", "--eval", text,
                    "--json").json
        ppl = self.ok("ppl", self.out, text, "--kl", TINY, "--json", "-ctk", "f32", "-ctv", "f32").json
        base = self.ok("ppl", TINY, text, "--json", "-ctk", "f32", "-ctv", "f32").json
        self.assertEqual((r["eval"]["ppl"], r["eval"]["kl"], r["eval"]["n_tokens"]),
                         (ppl["ppl"], ppl["kl"], ppl["n_tokens"]))
        self.assertEqual(r["eval"]["ppl_source"], base["ppl"])
        self.assertGreater(r["eval"]["kl"], 0)
        out = self.ok("quantize", TINY, "-o", self.out, "--quant", "f32", "-f", "--eval", text).out
        self.assertIn("mean KL 0.000000", out)

    def test_calibration_chooses_other_outliers(self):
        text = self.path("text.txt")
        with open(text, "w") as f:
            f.write("to be or not to be " * 20)
        a, b = self.path("a.cmf"), self.path("b.cmf")
        self.ok("quantize", TINY, "-o", a, "--quant", "q1t", "--outliers", 0.05)
        self.ok("quantize", TINY, "-o", b, "--quant", "q1t", "--outliers", 0.05, "--calibrate", text)
        self.ok("verify", b)
        ta, tb = self.tensors(a), self.tensors(b)
        q = "model.layers.0.self_attn.q_proj.weight"
        self.assertEqual(ta[q]["bytes"], tb[q]["bytes"])  # as many, others
        self.assertNotEqual(ta[q]["hash"], tb[q]["hash"])
        c = self.path("c.cmf")  # convert of a .cmf is the same; of another source it says how
        self.ok("convert", TINY, "-o", c, "--quant", "q1t", "--outliers", 0.05, "--calibrate", text)
        self.assertEqual(self.tensors(c)[q]["hash"], tb[q]["hash"])
        r = self.fails(USAGE, "convert", make_hf(self.path("hf")), "-o", c, "--quant", "q1t",
                       "--calibrate", text)
        self.assertIn("caisson quantize --calibrate", r.err)

    def test_what_makes_no_sense_is_refused(self):
        self.assertIn("--bits", self.fails(USAGE, "quantize", TINY, "-o", self.out, "--quant",
                                           "q8_row", "--bits", 4).err)
        self.assertIn("--calibrate", self.fails(USAGE, "quantize", TINY, "-o", self.out, "--quant",
                                                "q8_row", "--calibrate", TINY).err)
        self.fails(USAGE, "quantize", TINY, "-o", self.out)
        self.fails(USAGE, "quantize", make_hf(self.path("hf")), "-o", self.out, "--quant", "q8_row")
        self.fails(FAILED, "quantize", self.path("absent.cmf"), "-o", self.out, "--quant", "q8_row")
        every = os.path.join(FILES, "tiny-all-dtypes.cmf")
        self.assertIn("mix8_4", self.fails(FAILED, "quantize", every, "-o", self.out, "--quant",
                                           "q8_row").err)
        self.assertFalse(os.path.exists(self.out))

    def test_damage_is_found_and_named(self):
        path = self.path("bad.cmf")
        blob = bytearray(tool.read(TINY))
        at = self.tensors(TINY)["model.layers.1.mlp.up_proj.weight"]["offset"]
        blob[at + 9] ^= 1
        with open(path, "wb") as f:
            f.write(blob)
        for t in ("q8_row", "f32"):  # decoded, copied
            r = self.fails(FAILED, "quantize", path, "-o", self.out, "--quant", t, "-f")
            self.assertIn("model.layers.1.mlp.up_proj.weight", r.err)
            self.assertFalse(os.path.exists(self.out))

    def test_a_killed_run_goes_on(self):
        want = self.path("want.cmf")
        self.ok("quantize", TINY, "-o", want, "--quant", "vbit")
        for delay in (0.004, 0.008, 0.012, 0.016, 0.02):
            p = subprocess.Popen([tool.TOOL, "quantize", TINY, "-o", self.out, "--quant", "vbit"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=tool.env())
            time.sleep(delay)
            p.send_signal(signal.SIGKILL)
            p.wait(timeout=60)
            self.ok("quantize", TINY, "-o", self.out, "--quant", "vbit", "-f")
            self.assertEqual(tool.read(want), tool.read(self.out))
            os.unlink(self.out)


if __name__ == "__main__":
    tool.main()
