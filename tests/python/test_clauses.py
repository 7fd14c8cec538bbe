#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clauses of the format that ask something of the whole tool, each against files that maker.py or
another writer made: cut-down models (CMF 11), mixtures (CMF 2.2), pipelines (CMF 12), skill files
(CMF 9.1)."""
import json
import os
import struct
import subprocess
import unittest

import maker
import mutate
import support  # first of those that need numpy: without it the whole program is skipped
import numpy as np

from caisson_cmf import Model, hash64

TOOL = os.path.join(support.BUILD, "caisson")
FAMILIES = os.path.join(support.ROOT, "tests", "golden", "families")
F32, BF16, U8 = 0, 2, 6
EVAL = ("--tokens", "5,9,20,33,17,3,8", "--all", "--top", "350", "--json", "--compute", "f32", "-ctk",
        "f32", "-ctv", "f32")


def tool(*args, ok=True):
    p = subprocess.run([TOOL, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200)
    if ok is not None and (p.returncode == 0) != ok:
        raise AssertionError("%s: %d\n%s" % (args, p.returncode, p.stderr.decode()))
    return p.stderr.decode() if ok is False else p.stdout


def logits(path, *options):
    """[positions][vocabulary]"""
    rows = json.loads(tool("eval", path, *EVAL, *options))["positions"]
    return np.array([[t["logit"] for t in sorted(row["top"], key=lambda t: t["id"])] for row in rows])


def f32(name, values):
    return name, F32, values.shape, np.ascontiguousarray(values, "<f4").tobytes()


def layer_of(name):
    return int(name.split(".")[2]) if name.startswith("model.layers.") else None


def head_of(model, **arch):
    """The header of a golden file for one that maker.py writes."""
    raw = {k: v for k, v in model.header.raw.items() if k != "section_hashes"}
    raw["arch"] = {**raw["arch"], **arch}
    return json.dumps(raw).encode()


def bits(flags):
    return np.packbits(np.asarray(flags, np.uint8), bitorder="little").tobytes()


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class CutDown(support.Case):
    """CMF 11 and 11.1: a file from which what a mask switches off was dropped is the masked model."""

    def check(self, golden, cut, ffn, experts):
        """cut: (name, values) -> values, or None; ffn, experts: what the mask leaves, by layer."""
        model = Model(os.path.join(support.FILES, golden))
        a = model.arch
        blob = b"".join(bits(row) for row in ffn)
        blob += bits([1] * a["num_attention_heads"]) * a["num_layers"] + bits([1] * a["num_layers"])
        meta = {"task_id": 0, "name": "t", "sparsity": 0.5, "priority": "Normal"}
        if experts is not None:
            blob += b"".join(bits(row) for row in experts)
            meta["has_expert_fields"] = True
        plain = [f32(name, t.values()) for name, t in model.tensors.items()]
        dropped = [f32(name, cut(name, t.values())) for name, t in model.tensors.items()
                   if cut(name, t.values()) is not None]
        masked, small = self.scratch("masked.cmf"), self.scratch("small.cmf")
        head = head_of(model)
        with open(masked, "wb") as f:
            f.write(maker.file(plain, head=head, features=3, masks=maker.masks("none", [meta], [blob])))
        with open(small, "wb") as f:
            f.write(maker.file(dropped, head=head))
        for path in (masked, small):
            tool("verify", path)
        self.assertLess(os.path.getsize(small), os.path.getsize(masked))
        want = logits(masked, "--task", "t")
        np.testing.assert_allclose(logits(small), want, rtol=0, atol=1e-5)
        self.assertGreater(abs(logits(masked) - want).max(), 1e-3)  # the mask does something

    def test_neurons_by_layer(self):
        on = [np.arange(64) % 2 == 0, np.arange(64) < 24]  # 32 of 64 and 24: each layer its own width

        def cut(name, values):
            if ".mlp.down_proj." in name:
                return values[:, on[layer_of(name)]]
            return values[on[layer_of(name)]] if ".mlp." in name else values
        self.check("tiny-f32.cmf", cut, on, None)

    def test_experts_by_layer_and_a_smaller_top_k(self):
        """Layer 1 keeps one expert, fewer than top_k: it is clamped there alone."""
        kept = [[0, 3, 4, 10], [7]]

        def cut(name, values):
            return values[kept[layer_of(name)]] if name.endswith(".mlp.gate.weight") else values
        model = Model(os.path.join(support.FILES, "tiny-moe.cmf"))
        a = model.arch
        self.assertEqual((a["moe"]["num_experts"], a["moe"]["top_k"]), (11, 2))
        tensors = []
        for name, t in model.tensors.items():
            part = name.split(".")
            if ".experts." in name:
                layer, e = layer_of(name), int(part[5])
                if e not in kept[layer]:
                    continue
                part[5] = str(kept[layer].index(e))
            tensors.append(f32(".".join(part), cut(name, t.values())))
        small, masked = self.scratch("small.cmf"), self.scratch("masked.cmf")
        with open(small, "wb") as f:
            f.write(maker.file(tensors, head=head_of(model)))
        blob = bits([1] * a["intermediate_size"]) * 2 + bits([1] * 4) * 2 + bits([1] * 2)
        blob += b"".join(bits([e in k for e in range(11)]) for k in kept)
        meta = {"task_id": 0, "name": "t", "sparsity": 0.5, "priority": "Normal", "has_expert_fields": True}
        plain = [f32(name, t.values()) for name, t in model.tensors.items()]
        with open(masked, "wb") as f:
            f.write(maker.file(plain, head=head_of(model), features=3,
                               masks=maker.masks("none", [meta], [blob])))
        tool("verify", small)
        np.testing.assert_array_equal(logits(small), logits(masked, "--task", "t"))
        self.assertGreater(abs(logits(masked) - logits(small)).max(), 1e-3)

    def test_widths_that_do_not_agree_are_refused(self):
        model = Model(os.path.join(support.FILES, "tiny-f32.cmf"))
        for wrong in ("up_proj", "down_proj"):
            tensors = []
            for name, t in model.tensors.items():
                v = t.values()
                if name == "model.layers.1.mlp.%s.weight" % wrong:
                    v = v[:, :32] if wrong == "down_proj" else v[:32]
                tensors.append(f32(name, v))
            path = self.scratch(wrong + ".cmf")
            with open(path, "wb") as f:
                f.write(maker.file(tensors, head=head_of(model)))
            tool("verify", path)  # it is a sound file
            self.assertIn("model.layers.1.mlp.%s.weight" % wrong, tool("eval", path, *EVAL, ok=False))


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class Mixtures(support.Case):
    """CMF 2.2"""

    def test_experts_are_written_role_by_role(self):
        """Whatever the order of the source: all gate_proj of a layer, all up_proj, all down_proj."""
        source, path = self.scratch("hf"), self.scratch("m.cmf")
        os.mkdir(source)
        for name in os.listdir(os.path.join(FAMILIES, "qwen3_moe")):
            with open(os.path.join(FAMILIES, "qwen3_moe", name), "rb") as f:
                raw = f.read()
            if name.endswith(".safetensors"):  # the list in another order; payloads stay
                (n,) = struct.unpack_from("<Q", raw)
                listed = json.loads(raw[8:8 + n])
                text = json.dumps(dict(sorted(listed.items(), reverse=True))).encode()
                raw = struct.pack("<Q", len(text)) + text + raw[8 + n:]
            with open(os.path.join(source, name), "wb") as f:
                f.write(raw)
        tool("convert", source, "-o", path)
        model = Model(path)
        n = model.arch["moe"]["num_experts"]
        mixtures = [i for i in range(model.arch["num_layers"])
                    if "model.layers.%d.mlp.gate.weight" % i in model.tensors]
        self.assertTrue(mixtures)
        for i in mixtures:
            mine = [name for name in model.tensors if name.startswith("model.layers.%d.mlp.experts." % i)]
            self.assertEqual(mine, ["model.layers.%d.mlp.experts.%d.%s.weight" % (i, e, role) for role in
                                    ("gate_proj", "up_proj", "down_proj") for e in range(n)])
            offsets = [model.tensors[name].entry.off for name in mine]
            self.assertEqual(offsets, sorted(offsets))

    def test_each_expert_has_its_own_type(self):
        path, whole = self.scratch("m.cmf"), self.scratch("f.cmf")
        tool("convert", os.path.join(FAMILIES, "qwen3_moe"), "-o", path, "--quant", "q8_row", "--tensor",
             "*.experts.0.*=q4_block", "--tensor", "*.experts.1.gate_proj.*=f16", "--tensor",
             "*.experts.2.*=q1t")
        types = {t.dtype for name, t in Model(path).tensors.items() if ".experts." in name}
        self.assertGreaterEqual(types, {"q4_block", "f16", "q8_row"})
        tool("quantize", path, "-o", whole, "--quant", "f32")  # the values that they decode to
        np.testing.assert_allclose(logits(path), logits(whole), rtol=0, atol=2e-5)


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class Details(support.Case):
    def test_a_hash_of_0_is_compared_as_any_other(self):
        """A stored 0 means "absent" of sections, not of tensors (CMF 8, facts 9.1, 18.2)."""
        path = self.scratch("m.cmf")
        blob = bytearray(maker.file(hashes=False))
        (directory,) = struct.unpack_from("<Q", blob, 0x20)
        struct.pack_into("<Q", blob, directory + 16 + 48, 0)
        with open(path, "wb") as f:
            f.write(blob)
        told = tool("verify", path, "--json", ok=None)
        self.assertEqual([p["tensor"] for p in json.loads(told)[0]["problems"]], [maker.NORM[0]])

    def test_the_bit_of_two_fields(self):
        """QUANT_2F for q8_2f and vbit, not for vbit_ro (CMF 1.1, facts 18.3)."""
        for quant, bit in (("q8_2f", 4), ("vbit", 4), ("vbit_ro", 0), ("q8_row", 0)):
            path = self.scratch(quant + ".cmf")
            tool("convert", os.path.join(FAMILIES, "llama"), "-o", path, "--quant", quant)
            self.assertEqual(struct.unpack_from("<I", support.read(path), 12)[0] & 4, bit)

    def test_vocab_size_and_rows_of_the_head_may_differ(self):
        """Rows behind vocab_size are not asked, and tokens without a row may follow them (facts 15.2)."""
        model = Model(os.path.join(support.FILES, "tiny-f32.cmf"))
        tensors = [f32(name, t.values()) for name, t in model.tensors.items()]
        rows = {}
        for n in (340, 344, 350):
            path = self.scratch("%d.cmf" % n)
            with open(path, "wb") as f:
                f.write(maker.file(tensors, head=head_of(model, vocab_size=n)))
            rows[n] = logits(path)
        np.testing.assert_array_equal(rows[340], rows[344][:, :340])
        np.testing.assert_array_equal(rows[350][:, :344], rows[344])

    def test_any_type_anywhere(self):
        """Norms are f16 of most writers; they are read in what they have (CMF 3.2, facts 18.6)."""
        model = Model(os.path.join(support.FILES, "tiny-f32.cmf"))
        plain, other = [], []
        for name, t in model.tensors.items():
            values = t.values()
            if values.ndim == 1:
                halves = (values.view(np.uint32) >> 16).astype("<u2")
                other.append((name, BF16, values.shape, halves.tobytes()))
                values = (halves.astype(np.uint32) << 16).view(np.float32)
            else:
                other.append(f32(name, values))
            plain.append(f32(name, values))
        paths = []
        for i, tensors in enumerate((plain, other)):
            paths.append(self.scratch("%d.cmf" % i))
            with open(paths[-1], "wb") as f:
                f.write(maker.file(tensors, head=head_of(model)))
        np.testing.assert_array_equal(*map(logits, paths))


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class Pains(support.Case):
    """What people suffer from elsewhere."""

    def test_experts_that_no_token_chose_are_encoded_as_without_a_text(self):
        """And the tool says how many (U28)."""
        path, text = self.scratch("m.cmf"), self.scratch("text")
        with open(text, "w") as f:
            f.write("a b")
        tool("synth", "--family", "qwen3_moe", "-o", path, "-q", "f16", "--layers", "1")
        q = ("quantize", path, "--quant", "q1t", "--outliers", "0.05", "-o")
        plain, met = self.scratch("plain.cmf"), self.scratch("met.cmf")
        tool(*q, plain)
        p = subprocess.run([TOOL, *q, met, "--calibrate", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn(b"no token of the calibration", p.stderr)
        a, b = Model(plain).tensors, Model(met).tensors
        same = {name: a[name].entry.hash == b[name].entry.hash for name in a if ".experts." in name}
        self.assertEqual(set(same.values()), {True, False})
        self.assertTrue(all(np.isfinite(b[name].values()).all() for name in same))

    def test_the_tensors_decide_whether_there_is_an_mtp_head(self):
        """Declared without tensors, or there without being declared: it runs as without (U05)."""
        model = Model(os.path.join(support.FILES, "tiny-f32.cmf"))
        plain = [f32(name, t.values()) for name, t in model.tensors.items()]
        mtp = [f32("model.mtp.norm.weight", np.ones(32)), f32("model.mtp.eh_proj.weight", np.ones((32, 64)))]
        declared = {"mtp": {"num_layers": 1}}
        got = []
        for i, (tensors, arch) in enumerate(((plain, {}), (plain, declared), (plain + mtp, declared),
                                             (plain + mtp, {}))):
            path = self.scratch("%d.cmf" % i)
            with open(path, "wb") as f:
                f.write(maker.file(tensors, head=head_of(model, **arch)))
            got.append(logits(path))
        for other in got[1:]:
            np.testing.assert_array_equal(got[0], other)

    def test_what_a_model_was_made_from_is_in_it(self):
        """provenance names each source file with its size and hash (U32)."""
        path = self.scratch("m.cmf")
        source = os.path.join(FAMILIES, "qwen3_moe")
        tool("convert", source, "-o", path)
        named = Model(path).header.raw["provenance"]["source_files"]
        self.assertTrue(named)
        for f in named:
            raw = support.read(os.path.join(source, f["name"]))
            self.assertEqual((f["bytes"], f["hash64"]), (len(raw), "%016x" % hash64(raw)))


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class Pipelines(support.Case):
    """CMF 12: whoever does not run a pipeline opens, checks and shows its file all the same."""

    def test_a_pipeline_is_a_sound_file_that_does_not_run(self):
        config = b'{"model_type": "gemma2"}'
        tensors = [("te.config_json", U8, (len(config),), config),
                   f32("te.embed_tokens.weight", np.ones((2, 4))),
                   f32("dit.layers.0.norm1.linear.weight", np.full((4, 4), 0.5)),
                   ("vae.config_json", U8, (2,), b"{}"),
                   f32("vae.decoder.conv_in.weight", np.ones((2, 2, 3, 3)))]
        path = self.scratch("p.cmf")
        head = maker.header({"arch_name": "lumina2-image"}, provenance={"pipeline": "lumina-image-2.0"})
        with open(path, "wb") as f:
            f.write(maker.file(tensors, head=head))
        tool("verify", path)
        self.assertEqual([t["name"] for t in json.loads(tool("tensor", path, "--json"))],
                         [t[0] for t in tensors])
        out = self.scratch("config.json")
        tool("extract", path, "te.config_json", "-o", out)
        self.assertEqual(support.read(out), config)
        self.assertIn("model.embed_tokens.weight", tool("eval", path, *EVAL, ok=False))
        self.assertEqual(Model(path).tensors["te.config_json"].payload().tobytes(), config)


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class SkillFiles(support.Case):
    def test_a_skill_file_says_how_it_becomes_a_model(self):
        """CMF 9.1: it does not run, and names the command that lays it over its base."""
        path = os.path.join(support.FILES, "tiny-skill-file.cmf")
        for command in (("run", path, "hi"), ("eval", path, *EVAL), ("chat", path), ("bench", path)):
            self.assertIn("caisson skill apply", tool(*command, ok=False))

    def test_a_list_of_names_must_hold_what_the_skill_brings(self):
        """Our own addition to a skill's provenance: the order of the model that it was cut from."""
        base, model = os.path.join(support.FILES, "tiny-f32.cmf"), self.scratch("specialist-of-a-long-name.cmf")
        skill, bad, out = (self.scratch(n) for n in ("skill.cmf", "bad.cmf", "out.cmf"))
        tool("quantize", base, "-o", model, "--quant", "q8_row")
        tool("skill", "export", model, "s", "--base", base, "-o", skill)
        tool("skill", "apply", base, skill, "-o", out)
        self.assertEqual(support.read(out), support.read(model))
        os.unlink(out)
        for names in ("[]", "7", '["lm_head.weight"]'):
            blob = bytearray(support.read(skill))
            mutator = mutate.Mutator(skill, 0)
            head = mutator.at["header"]
            text = bytes(blob[head.offset : head.end])
            new = text.replace(b"specialist-of-a-long-name.cmf", b"")  # room for the names
            new = new.replace(b'"caisson":{}', b'"caisson":{"tensors":%s}' % names.encode())
            self.assertTrue(b'"caisson":{}' not in new and len(new) <= len(text))
            blob[head.offset : head.end] = new.ljust(len(text))
            with open(bad, "wb") as f:
                f.write(mutator.rehash(blob))
            self.assertIn("provenance.caisson.tensors", tool("skill", "apply", base, bad, "-o", out, ok=False))
            self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    support.main()
