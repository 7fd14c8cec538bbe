#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""info, tensor and verify on .waste directories: the same commands and forms as for .cmf files."""
import json
import os
import random
import shutil
import struct

import tool
from test_model import read_npy

WARP = os.path.join(tool.ROOT, "tests", "golden", "warp")
BASE = os.path.join(WARP, "vq3r-base.waste")
EXPERT = "model.layers.1.mlp.experts.3."


def names(container):
    return json.loads(tool.read(os.path.join(WARP, container, "manifest.json")))


class Info(tool.Case):
    def test_json(self):
        r = self.ok("info", BASE, "--json").json
        manifest = names("vq3r-base.waste")
        self.assertEqual(r["container"]["format"], "waste")
        self.assertEqual(r["quant_type"], "vq3r")
        self.assertEqual(r["experts"]["record_bytes"], 3 * 4096)
        self.assertEqual(r["tensors"]["n"], len(manifest["trunk"]) + 3 * 8 * 3)
        count = 0
        for t in manifest["trunk"]:
            n = 1
            for d in t["shape"]:
                n *= d
            count += n
        expert = 3 * 128 * 64
        self.assertEqual(r["parameters"]["total"], count + expert * 8 * 3)
        self.assertEqual(r["parameters"]["active"], count + expert * 2 * 3 - 256 * 128)
        self.assertTrue(r["runs"], r.get("why_not"))
        self.assertEqual(r["chat"]["eos_token_ids"], [2])

    def test_tensors_outside_of_the_prefix_are_no_parameters(self):
        r = self.ok("info", os.path.join(WARP, "vq3r-k3.waste"), "--json").json
        self.assertEqual(r["tensors"]["values"] - r["parameters"]["total"], 8 * 128)

    def test_human_form(self):
        out = self.ok("info", BASE).out
        for word in ("container   waste, version 0", "experts-L2.bin", "parameters  1113764",
                     "experts     8 in each of 3 layers, 2 a token", "vq3r", "runs        yes"):
            self.assertIn(word, out)


class Tensor(tool.Case):
    def test_list(self):
        r = {t["name"]: t for t in self.ok("tensor", BASE, "--json").json}
        t = r[EXPERT + "up_proj.weight"]
        self.assertEqual((t["dtype"], t["shape"], t["shard"]), ("vq3r", [64, 128], 2))
        self.assertEqual((t["offset"], t["bytes"]), (3 * 12288 + 3120, 3072 + 128))
        self.assertEqual(r["model.embed_tokens.weight"]["bytes"], 33280)

    def test_single_weights(self):
        """Worked out by hand in the README of the interop data."""
        for kind, row, col, weight in (("gate", 63, 127, -0.001141131), ("up", 7, 19, 0.4299012),
                                       ("down", 126, 61, -0.1620872)):
            npy = self.path(kind + ".npy")
            self.ok("tensor", BASE, EXPERT + kind + "_proj.weight", "--npy", npy)
            shape, values = read_npy(npy)
            self.assertEqual(list(shape), [128, 64] if kind == "down" else [64, 128])
            self.assertAlmostEqual(values[row * shape[1] + col], weight, places=6)

    def test_absent(self):
        for name in ("model.layers.0.mlp.experts.0.up_proj.weight", EXPERT + "x_proj.weight",
                     "model.layers.1.mlp.experts.8.up_proj.weight",
                     "model.layers.1.mlp.experts.03.up_proj.weight"):
            self.fails(tool.FAILED, "tensor", BASE, name)


GOLDEN = os.path.join(tool.ROOT, "tests", "golden")


class FromGguf(tool.Case):
    """GGUFs that llama.cpp's converter made of tiny checkpoints (tests/oracle/gguf_models.py)."""
    FAMILIES = ("deepseek_v3", "kimi_linear_even")

    def test_logits_are_those_of_transformers(self):
        for family in self.FAMILIES + ("deepseek_v2", "deepseek_v2_lite"):
            self.check_logits(family)

    def test_a_softmax_router_is_refused_by_name(self):
        """WARP has no words for it: its engine would score by the sigmoid."""
        cmf = self.path("v2.cmf")
        source = os.path.join(GOLDEN, "families", "deepseek_v2")
        self.ok("convert", source, "-o", cmf)
        for path in (source, cmf, os.path.join(GOLDEN, "convert", "gguf", "deepseek_v2.gguf")):
            r = self.fails(tool.FAILED, "convert", path, "-o", self.path("v2.waste"))
            self.assertIn("a router of softmax", r.err)
            self.assertFalse(os.path.exists(self.path("v2.waste")))

    def check_logits(self, family):
        golden = json.loads(tool.read(os.path.join(GOLDEN, "families", family + ".json")))["prompts"][0]
        cmf = self.path(family + ".cmf")
        self.ok("convert", os.path.join(GOLDEN, "convert", "gguf", family + ".gguf"), "-o", cmf, "--quant", "f32")
        r = self.ok("eval", cmf, "--tokens", ",".join(map(str, golden["tokens"])), "-n",
                    len(golden["generated"]), "--compute", "f32", "--json", "-ctk", "f32", "-ctv",
                    "f32").json
        self.assertEqual(r["generated"], golden["generated"])
        want = {p["i"]: p for p in golden["positions"]}[len(golden["tokens"]) - 1]
        logits = dict(zip(want["ids"], want["logits"]))
        for top in r["positions"][0]["top"]:
            if top["id"] in logits:
                self.assertAlmostEqual(top["logit"], logits[top["id"]], delta=1e-3)

    def test_a_directory_as_from_the_checkpoint(self):
        for family in self.FAMILIES:
            self.check_directory(family)

    def check_directory(self, family):
        gguf, hf = self.path(family + "-g.waste"), self.path(family + "-h.waste")
        self.ok("convert", os.path.join(GOLDEN, "convert", "gguf", family + ".gguf"), "-o", gguf)
        self.ok("convert", os.path.join(GOLDEN, "families", family), "-o", hf)
        for name in ("codebooks.bin", "experts-L1.bin", "experts-L2.bin"):
            self.assertEqual(tool.read(os.path.join(gguf, name)), tool.read(os.path.join(hf, name)))
        a, b = (json.loads(tool.read(os.path.join(d, "manifest.json"))) for d in (gguf, hf))
        for config in (a["config"], b["config"]):
            config.pop("eos_token_id", None)  # these GGUFs have no tokenizer
        self.assertEqual(a, b)
        trunks = [bytearray(tool.read(os.path.join(d, "trunk.bin"))) for d in (gguf, hf)]
        for t in a["trunk"]:
            if t["name"].endswith(".A_log"):  # llama.cpp keeps -exp of it, rounded
                n = t["shape"][0]
                x, y = (struct.unpack_from("<%df" % n, trunk, t["off"]) for trunk in trunks)
                for i in range(n):
                    self.assertAlmostEqual(x[i], y[i], delta=2.4e-7 * max(1, abs(y[i])))
                trunks[0][t["off"]:t["off"] + 4 * n] = trunks[1][t["off"]:t["off"] + 4 * n]
        self.assertEqual(trunks[0], trunks[1])
        self.ok("verify", gguf)

    def test_export_says_what_the_checkpoint_said(self):
        for family, model_type in (("kimi_linear_even", "kimi_linear"), ("deepseek_v2", "deepseek_v2"),
                                   ("deepseek_v3", "deepseek_v3")):
            self.check_export(family, model_type)

    def check_export(self, family, model_type):
        cmf, hf, again = self.path(family + ".cmf"), self.path(family), self.path(family + "-again.cmf")
        self.ok("convert", os.path.join(GOLDEN, "convert", "gguf", family + ".gguf"), "-o", cmf, "-q", "f32")
        self.ok("export", cmf, "-o", hf)
        self.assertEqual(json.loads(tool.read(os.path.join(hf, "config.json")))["model_type"], model_type)
        self.ok("convert", hf, "-o", again, "-q", "f32")
        a, b = ({t["name"]: t["hash"] for t in self.ok("tensor", f, "--json").json} for f in (cmf, again))
        self.assertEqual(a, b)


class LatentEpsilon(tool.Case):
    """Where transformers has one for the norms of latents and another for the others."""

    def test_what_cannot_say_it_tells(self):
        source = os.path.join(GOLDEN, "families", "kimi_linear_wide")
        waste, cmf, direct = self.path("a.waste"), self.path("a.cmf"), self.path("b.cmf")
        self.assertIn("one epsilon for all norms", self.ok("convert", source, "-o", waste).err)
        self.ok("convert", waste, "-o", cmf)
        self.ok("convert", source, "-o", direct)
        told = "in transformers, always"
        self.assertIn(told, self.ok("export", cmf, "-o", self.path("a")).err)
        self.assertNotIn(told, self.ok("export", direct, "-o", self.path("b")).err)


class BackToACheckpoint(tool.Case):
    """A .waste names its model in words of its own."""

    def check(self, waste, model_type):
        cmf, hf, again = self.path(model_type + ".cmf"), self.path(model_type), self.path(model_type + "2.cmf")
        self.ok("convert", waste, "-o", cmf, "-q", "f32")
        self.assertNotIn("norms of latents", self.ok("export", cmf, "-o", hf).err)
        self.assertEqual(json.loads(tool.read(os.path.join(hf, "config.json")))["model_type"], model_type)
        self.ok("convert", hf, "-o", again, "-q", "f32")
        a, b = ({t["name"]: t["hash"] for t in self.ok("tensor", f, "--json").json} for f in (cmf, again))
        self.assertEqual(a, b)

    def test_deepseek_v3(self):
        waste = self.path("a.waste")
        self.ok("convert", os.path.join(GOLDEN, "families", "deepseek_v3"), "-o", waste)
        self.check(waste, "deepseek_v3")

    def test_kimi_k3(self):
        self.check(os.path.join(WARP, "vq3r-k3.waste"), "kimi_k3")


class Towers(tool.Case):
    """What lies beside the language model is left out, of a .waste as of a checkpoint."""

    def test_left_out(self):
        source = os.path.join(WARP, "vq3r-k3.waste")
        cmf, back, again = self.path("k3.cmf"), self.path("back.waste"), self.path("again.waste")
        err = self.ok("convert", source, "-o", cmf, "--quant", "f32").err
        self.assertIn("towers are left out", err)
        self.assertNotIn("vision", self.ok("tensor", cmf).out)
        want = json.loads(tool.read(os.path.join(WARP, "answers.json")))["vq3r-k3"]["greedy"]
        r = self.ok("eval", cmf, "--tokens", "3,7,11,5,200,42", "-n", len(want), "--json").json
        self.assertEqual(r["generated"], want)
        for path, out in ((cmf, back), (source, again)):
            self.ok("convert", path, "-o", out)
            self.ok("verify", out)


class NoWords(tool.Case):
    """What Kimi K3's config.json says and Kimi-Linear's cannot: no config.json of another model."""

    def test_export(self):
        for has_bound in (True, False):
            waste, cmf, hf = (self.path(f"{has_bound}{x}") for x in (".waste", ".cmf", "-hf"))
            shutil.copytree(BASE, waste)
            manifest = names("vq3r-base.waste")
            if has_bound:
                manifest["config"]["linear_attn_config"]["gate_lower_bound"] = -5
            with open(os.path.join(waste, "manifest.json"), "w", encoding="utf-8") as f:
                json.dump(manifest, f)
            self.ok("convert", waste, "-o", cmf, "--quant", "f32")
            err = self.ok("export", cmf, "-o", hf).err
            self.assertEqual("no config.json" in err, has_bound)
            self.assertEqual(os.path.exists(os.path.join(hf, "config.json")), not has_bound)


class NoPlace(tool.Case):
    """What WARP has no words for is refused, or told, when a .waste is made."""

    def test_rotation(self):
        """transformers knows these keys, the existing engine passes over them."""
        family = os.path.join(GOLDEN, "families", "deepseek_v3")
        source = self.path("hf")
        os.mkdir(source)
        for name in os.listdir(family):
            os.symlink(os.path.join(family, name), os.path.join(source, name))
        for key, value, ok in (("truncate", True, True), ("truncate", False, False), ("factor", 0.5, False)):
            config = json.loads(tool.read(os.path.join(family, "config.json")))
            config["rope_parameters"][key] = value
            os.unlink(os.path.join(source, "config.json"))
            with open(os.path.join(source, "config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f)
            cmf = self.path("yarn.cmf")
            self.ok("convert", source, "-o", cmf, "-f")
            for path in (source, cmf):
                args = ("convert", path, "-o", self.path("yarn.waste"), "-f")
                if ok:
                    self.ok(*args)
                else:
                    self.assertIn("YaRN with", self.fails(tool.FAILED, *args).err)

    def test_several_end_tokens(self):
        """eos_token_id holds one number for the existing engine; ours stops at the others too."""
        family, hf, cmf, waste = (os.path.join(GOLDEN, "families", "deepseek_v3"), *map(
            self.path, ("hf", "eos.cmf", "eos.waste")))
        shutil.copytree(family, hf)
        config = json.loads(tool.read(os.path.join(family, "config.json")))
        config["eos_token_id"] = [2, 5, 9]
        with open(os.path.join(hf, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        self.ok("convert", hf, "-o", waste)
        self.ok("convert", waste, "-o", cmf)
        self.assertEqual(json.loads(tool.read(os.path.join(waste, "manifest.json")))["config"]["eos_token_id"], 2)
        for path in (waste, cmf):
            self.assertEqual(self.ok("info", path, "--json").json["chat"]["eos_token_ids"], [2, 5, 9])

    def test_masks(self):
        cmf = self.path("m.cmf")
        self.ok("convert", os.path.join(GOLDEN, "families", "deepseek_v3"), "-o", cmf)
        self.assertNotIn("mask", self.ok("convert", cmf, "-o", self.path("none.waste")).err)
        self.ok("masks", "make", cmf, "code", "--text", "-", "--default", stdin=b"some text to go by " * 4)
        self.assertIn('task mask "code"', self.ok("convert", cmf, "-o", self.path("m.waste")).err)
        self.assertIn('task mask "code"', self.ok("export", cmf, "-o", self.path("hf")).err)

    def test_what_the_format_does_not_hold_is_told_before_the_work(self):
        hf, out = self.path("hf"), self.path("m.waste")
        shutil.copytree(os.path.join(GOLDEN, "families", "deepseek_v3"), hf)
        config = json.loads(tool.read(os.path.join(hf, "config.json")))
        with open(os.path.join(hf, "config.json"), "w", encoding="utf-8") as f:
            json.dump(dict(config, rms_norm_eps=1.0), f)  # below 1: warp facts 2.4
        r = self.fails(tool.FAILED, "convert", hf, "-o", out)
        self.assertIn("rms_norm_eps", r.err)
        self.assertNotIn(".part", r.err)
        self.assertEqual(os.listdir(self.dir), ["hf"])


class WideLatent(tool.Case):
    """Experts that are wider than the model: the golden Kimi K3 with zeros behind its latent."""
    OLD, NEW = 28, 60  # the model has 32

    def test_logits_stay(self):
        family = os.path.join(GOLDEN, "families", "kimi_k3")
        source, cmf = self.path("hf"), self.path("wide.cmf")
        os.mkdir(source)
        config = json.loads(tool.read(os.path.join(family, "config.json")))
        config["text_config"]["routed_expert_hidden_size"] = self.NEW
        with open(os.path.join(source, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        shutil.copy(os.path.join(family, "tokenizer.json"), source)
        self.widen(os.path.join(family, "model.safetensors"),
                   os.path.join(source, "model.safetensors"))
        self.ok("convert", source, "-o", cmf, "--quant", "f32")
        golden = json.loads(tool.read(family + ".json"))["prompts"][-1]
        want = {p["i"]: dict(zip(p["ids"], p["logits"])) for p in golden["positions"]}
        for args in ((), ("-ub", "1"), ("--budget", "1G")):
            r = self.ok("eval", cmf, "--tokens", ",".join(map(str, golden["tokens"])), "-n",
                        len(golden["generated"]), "--all", "--compute", "f32", "--json", "-ctk",
                        "f32", "-ctv", "f32", *args).json
            self.assertEqual(r["generated"], golden["generated"])
            n = 0
            for p in r["positions"]:
                for top in p["top"]:
                    if top["id"] in want.get(p["i"], {}):
                        n += 1
                        self.assertAlmostEqual(top["logit"], want[p["i"]][top["id"]], delta=1e-3)
            self.assertGreater(n, 0)

    def widen(self, source, target):
        blob = tool.read(source)
        n = int.from_bytes(blob[:8], "little")
        header, data, out = json.loads(blob[8:8 + n]), blob[8 + n:], bytearray()
        for name, t in header.items():
            if name == "__metadata__":
                continue
            self.assertEqual(t["dtype"], "BF16")
            raw = data[t["data_offsets"][0]:t["data_offsets"][1]]
            # the norm divides by the root of a mean over more values
            scale = (self.OLD / self.NEW) ** 0.5 if name.endswith("routed_expert_norm.weight") else 1
            x = [scale * struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0]
                 for i in range(0, len(raw), 2)]
            end = name.rsplit(".", 2)
            if name.endswith("routed_expert_up_proj.weight") or end[-2] in ("w1", "w3"):
                rows = [x[i:i + self.OLD] for i in range(0, len(x), self.OLD)]
                x = [v for row in rows for v in row + [0] * (self.NEW - self.OLD)]
                t["shape"][1] = self.NEW
            elif "routed_expert_" in name or end[-2] == "w2":
                x += [0] * (len(x) // self.OLD * (self.NEW - self.OLD))
                t["shape"][0] = self.NEW
            t["dtype"], t["data_offsets"] = "F32", [len(out), len(out) + 4 * len(x)]
            out += struct.pack("<%df" % len(x), *x)
        text = json.dumps(header).encode()
        with open(target, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text + out)


class ByRows(tool.Case):
    def test_large_matrices_are_converted_in_pieces(self):
        """The same bytes as from a .cmf, which is read otherwise."""
        source, rows, cols = self.path("hf"), 131200, 32  # more than 4 million values
        shutil.copytree(os.path.join(GOLDEN, "families", "deepseek_v3"), source)
        path = os.path.join(source, "config.json")
        config = json.loads(tool.read(path))
        config["vocab_size"] = rows
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        path = os.path.join(source, "model.safetensors")
        blob = tool.read(path)
        n = int.from_bytes(blob[:8], "little")
        header, data = json.loads(blob[8:8 + n]), blob[8 + n:]
        for seed, name in enumerate(("model.embed_tokens.weight", "lm_head.weight")):
            values = bytearray(2 * rows * cols)  # bf16 between 0.12 and 0.5
            values[0::2] = random.Random(seed).randbytes(rows * cols)
            values[1::2] = bytes([0x3e]) * (rows * cols)
            header[name] = {"dtype": "BF16", "shape": [rows, cols],
                            "data_offsets": [len(data), len(data) + len(values)]}
            data += values
        # offsets of a safetensors file leave no gap: the small tensors of these names go
        order = sorted((k for k in header if k != "__metadata__"),
                       key=lambda k: header[k]["data_offsets"][0])
        packed = bytearray()
        for name in order:
            a, b = header[name]["data_offsets"]
            header[name]["data_offsets"] = [len(packed), len(packed) + b - a]
            packed += data[a:b]
        text = json.dumps(header).encode()
        with open(path, "wb") as f:
            f.write(len(text).to_bytes(8, "little") + text + packed)
        pieces, whole, cmf = self.path("p.waste"), self.path("w.waste"), self.path("m.cmf")
        r = self.ok("convert", source, "-o", pieces, "--json").json
        self.ok("convert", source, "-o", cmf, "--quant", "f32")
        w = self.ok("convert", cmf, "-o", whole, "--json").json
        self.assertEqual(tool.read(os.path.join(pieces, "trunk.bin")),
                         tool.read(os.path.join(whole, "trunk.bin")))
        errors = [{t["name"]: t["relative_error"] for t in x["tensors"]} for x in (r, w)]
        name = "model.embed_tokens.weight"
        self.assertGreater(errors[0][name], 0)
        self.assertAlmostEqual(errors[0][name], errors[1][name], places=9)


class Verify(tool.Case):
    def setUp(self):
        super().setUp()
        self.waste = self.path("m.waste")
        shutil.copytree(BASE, self.waste)

    def flip(self, name, at):
        path = os.path.join(self.waste, name)
        blob = bytearray(tool.read(path))
        blob[at] ^= 1
        with open(path, "wb") as f:
            f.write(blob)

    def problems(self):
        r = self.fails(tool.FAILED, "verify", "--json", self.waste).json[0]
        self.assertFalse(r["valid"])
        return r["problems"]

    def test_values_of_the_trunk(self):
        trunk = {t["name"]: t for t in names("vq3r-base.waste")["trunk"]}
        norm, embed = "model.norm.weight", "model.embed_tokens.weight"
        for name, at, bits in ((norm, trunk[norm]["off"] + 4 * 9, b"\0\0\xc0\x7f"),
                               (embed, trunk[embed]["scale_off"] + 2 * 11, b"\0\xfc")):
            path = os.path.join(self.waste, "trunk.bin")
            blob = bytearray(tool.read(path))
            old = bytes(blob[at:at + len(bits)])
            blob[at:at + len(bits)] = bits
            with open(path, "wb") as f:
                f.write(blob)
            (p,) = self.problems()
            self.assertEqual((p["tensor"], p["offset"]), (name, at))
            self.assertIn("not a finite number", p["message"])
            blob[at:at + len(bits)] = old
            with open(path, "wb") as f:
                f.write(blob)
        self.ok("verify", self.waste)

    def test_records(self):
        r = self.ok("verify", self.waste)
        self.assertIn("--write-digests", r.out)  # a note: the trunk cannot be checked
        self.flip("experts-L2.bin", 5 * 12288 + 77)
        p = self.problems()
        self.assertEqual([(x["code"], x["tensor"]) for x in p],
                         [("Hash", "model.layers.2.mlp.experts.5")])

    def test_digests(self):
        self.flip("trunk.bin", 40000)
        self.ok("verify", self.waste)  # nothing covers it
        self.flip("trunk.bin", 40000)
        self.ok("verify", "--write-digests", self.waste)
        self.assertNotIn("Note", self.ok("verify", self.waste).out)
        self.flip("trunk.bin", 40000)
        self.flip("codebooks.bin", 30)
        p = self.problems()
        self.assertEqual([x["code"] for x in p], ["Hash", "Hash"])
        self.assertIn("codebooks.bin", p[0]["message"])
        self.assertTrue(p[1]["tensor"].startswith("model.layers.0."))

    def test_our_writers_leave_digests(self):
        out = self.path("s.waste")
        self.ok("synth", "--family", "kimi_linear", "--seed", "3", "-o", out)
        self.assertTrue(os.path.exists(os.path.join(out, "caisson.digests.json")))
        self.assertNotIn("Note", self.ok("verify", out).out)

    def test_open_with_verify(self):
        eval_it = ("eval", self.waste, "--tokens", "3,7,11", "--verify")
        self.ok("verify", "--write-digests", self.waste)
        self.ok(*eval_it)
        for name, places, said in (("trunk.bin", [40000], "model.layers.0."),
                                   ("codebooks.bin", [30], "codebooks.bin"),
                                   ("experts-L1.bin", range(60, 98304, 12288), "experts-L1.bin")):
            for at in places:
                self.flip(name, at)
            self.assertIn(said, self.fails(tool.FAILED, *eval_it).err)
            for at in places:
                self.flip(name, at)

    def test_verify_records_sees_layers_that_are_streamed(self):
        eval_it = ("eval", self.waste, "--tokens", "3,7,11", "--verify-records", "--stream-trunk",
                   "--budget", "8M")
        self.flip("trunk.bin", 40000)
        self.ok(*eval_it)  # nothing covers it
        self.flip("trunk.bin", 40000)
        self.ok("verify", "--write-digests", self.waste)
        self.ok(*eval_it)
        self.flip("trunk.bin", 40000)
        self.assertIn("model.layers.0.", self.fails(tool.FAILED, *eval_it).err)
        self.ok(*(a for a in eval_it if a != "--verify-records"))

    def test_damage_is_not_sealed(self):
        self.flip("experts-L1.bin", 100)
        self.fails(tool.FAILED, "verify", "--write-digests", self.waste)
        self.assertFalse(os.path.exists(os.path.join(self.waste, "caisson.digests.json")))

    def test_what_does_not_open(self):
        os.remove(os.path.join(self.waste, "codebooks.bin"))
        p = self.problems()
        self.assertEqual(p[0]["code"], "Io")
        self.assertIn("codebooks.bin", p[0]["message"])

    def test_tensors_that_config_asks_for(self):
        manifest = names("vq3r-base.waste")
        with open(os.path.join(self.waste, "manifest.json"), "w", encoding="utf-8") as f:
            manifest["trunk"] = [t for t in manifest["trunk"] if t["name"] != "lm_head.weight"]
            json.dump(manifest, f)
        (p,) = self.problems()
        self.assertEqual((p["code"], p["tensor"]), ("MissingTensor", "lm_head.weight"))
        self.fails(tool.FAILED, "verify", "--write-digests", self.waste)

    def test_only_directories_take_digests(self):
        r = self.fails(tool.FAILED, "verify", "--write-digests", tool.TINY)
        self.assertIn("only", r.err)

    def test_a_bank_may_be_a_link(self):
        bank = os.path.join(self.waste, "experts-L1.bin")
        os.rename(bank, self.path("elsewhere.bin"))
        os.symlink(self.path("elsewhere.bin"), bank)
        self.ok("verify", self.waste)


class OtherCommands(tool.Case):
    def test_what_only_a_cmf_has_is_refused_by_name(self):
        for args in (("diff", BASE, BASE), ("diff", BASE, tool.TINY)):
            self.assertIn(".cmf", self.fails(tool.USAGE, *args).err)


tool.main()
