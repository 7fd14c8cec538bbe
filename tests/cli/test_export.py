#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""export: what convert reads back is the model that was exported, family by family. The values are
held against the Python reader's in tests/python/test_against_tool.py, and transformers loads the
directory in tests/oracle/export_model.py."""
import json
import os
import shutil
import struct

import tool
from tool import FAILED, FILES, ROOT, TINY, USAGE

FAMILIES = os.path.join(ROOT, "tests", "golden", "families")
NO_CONFIG = {"llama_rope3"}


class Export(tool.Case):
    def test_every_family_comes_back(self):
        names = [n for n in sorted(os.listdir(FAMILIES)) if os.path.isdir(os.path.join(FAMILIES, n))]
        self.assertGreater(len(names), 15)
        for name in names:
            with self.subTest(name):
                a, hf, b = (self.path(name + end) for end in (".a.cmf", ".hf", ".b.cmf"))
                self.ok("convert", os.path.join(FAMILIES, name), "-o", a, "--quant", "f32")
                r = self.ok("export", a, "-o", hf)
                self.assertEqual(os.path.exists(os.path.join(hf, "config.json")),
                                 name not in NO_CONFIG, r.err)
                if name in NO_CONFIG:
                    self.assertIn("no config.json", r.err)
                    continue
                self.ok("convert", hf, "-o", b, "--quant", "f32")
                d = tool.run("diff", a, b, "--json").json
                named = {"key": "tokenizer_config.special_tokens_map", "a": None, "b": {}}
                self.assertEqual([h for h in d["header"] if h != named  # it says now that it has none
                                  and not h["key"].startswith("provenance.")], [])
                self.assertEqual((d["sections"], d["tensors"]["changed"], d["tensors"]["only_a"],
                                  d["tensors"]["only_b"]), ([], [], [], []))

    def test_what_the_class_cannot_say_leaves_no_config(self):
        """Each of these models would load, by transformers too, and answer otherwise."""
        for family, key, value in (("llama", "norm_style", "gemma"), ("gemma2", "norm_style", "qwen"),
                                   ("qwen3", "final_logit_softcapping", 5.0),
                                   ("mistral", "attn_logit_softcapping", 2.0),
                                   ("qwen3", "embed_multiplier", 2.0),
                                   ("qwen3", "query_pre_attn_scalar", 100.5),
                                   ("llama", "sliding_window", 2),
                                   ("deepseek_v3", "moe_intermediate_size", 0)):
            with self.subTest(family + "." + key):
                path, hf = self.path("m.cmf"), self.path(family + key)
                self.ok("convert", os.path.join(FAMILIES, family), "-o", path, "--force")
                blob = bytearray(tool.read(path))
                off, n = struct.unpack_from("<2Q", blob, 16)
                header = json.loads(blob[off : off + n])
                (header["arch"]["moe"] if "moe" in key else header["arch"])[key] = value
                if key == "sliding_window":
                    header["arch"]["layer_types"][0] = "SlidingAttention"
                text = json.dumps(header).encode()
                struct.pack_into("<2Q", blob, 16, len(blob), len(text))
                struct.pack_into("<Q", blob, 0x70, 0)  # no hash
                with open(path, "wb") as f:
                    f.write(blob + text)
                r = self.ok("export", path, "-o", hf)
                self.assertIn("no config.json: ", r.err)
                self.assertIn({"sliding_window": "layer_types", "moe_intermediate_size": "width"}
                              .get(key, key), r.err)
                self.assertEqual(sorted(os.listdir(hf)), ["model.safetensors", "tokenizer.json",
                                                          "tokenizer_config.json"])

    def test_llama3_frequencies_are_recognised(self):
        source, a, hf = self.path("src"), self.path("a.cmf"), self.path("hf")
        shutil.copytree(os.path.join(FAMILIES, "llama_rope3"), source)
        config = json.loads(tool.read(os.path.join(source, "config.json")))
        for key in ("rope_parameters", "rope_scaling"):
            if isinstance(config.get(key), dict):
                config[key].update(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                   original_max_position_embeddings=8192)
        with open(os.path.join(source, "config.json"), "w") as f:
            json.dump(config, f)
        self.ok("convert", source, "-o", a)
        self.ok("export", a, "-o", hf)
        scaling = json.loads(tool.read(os.path.join(hf, "config.json")))["rope_scaling"]
        self.assertEqual(scaling, {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 8192})

    def config_of(self, family, **changes):
        """Of the export of a golden family, whose config.json was changed before."""
        source, a, hf = (self.path(family + end) for end in (".src", ".cmf", ".hf"))
        shutil.copytree(os.path.join(FAMILIES, family), source)
        path = os.path.join(source, "config.json")
        config = {**json.loads(tool.read(path)), **changes}
        with open(path, "w") as f:
            json.dump({k: v for k, v in config.items() if v != "gone"}, f)
        self.ok("convert", source, "-o", a)
        self.ok("export", a, "-o", hf)
        self.ok("convert", hf, "-o", self.path(family + ".b.cmf"))
        return json.loads(tool.read(os.path.join(hf, "config.json")))

    def test_classes_of_transformers_take_the_config(self):
        """5.24.0: query_pre_attn_scalar is an int, a mistral with layer_types becomes a ministral, a
        window or pad_token_id that is left out is the class's own, mlp_only_layers decides which
        layers are mixtures and qkv_bias which tensors there are."""
        for family, scalar in (("gemma2", 24), ("gemma3", 16)):
            got = self.config_of(family)["query_pre_attn_scalar"]
            self.assertEqual((got, type(got)), (scalar, int))
        c = self.config_of("mistral", sliding_window=None)
        self.assertEqual((c["sliding_window"], "layer_types" in c), (None, False))
        c = self.config_of("smollm3", pad_token_id="gone")
        self.assertEqual(c["pad_token_id"], None)
        self.assertIn("pad_token_id", c)
        self.assertEqual(self.config_of("qwen3_moe")["mlp_only_layers"], [1])
        c = self.config_of("qwen2_moe")
        self.assertEqual((c["mlp_only_layers"], c["qkv_bias"]), ([], True))

    def test_shards_have_an_index(self):
        hf = self.path("hf")
        self.ok("export", TINY, "-o", hf, "--shard-max-size", "60K")
        index = json.loads(tool.read(os.path.join(hf, "model.safetensors.index.json")))
        files = set(index["weight_map"].values())
        self.assertGreater(len(files), 2)
        for name in files:
            self.assertTrue(os.path.exists(os.path.join(hf, name)))
        self.ok("convert", hf, "-o", self.path("b.cmf"), "--quant", "f32")
        d = tool.run("diff", TINY, self.path("b.cmf"), "--json").json
        self.assertEqual(d["tensors"]["only_a"] + d["tensors"]["only_b"], [])
        # a later export into one file leaves no index behind
        self.assertIn("replaced", self.fails(FAILED, "export", TINY, "-o", hf).err)
        self.ok("export", TINY, "-o", hf, "--force")
        self.assertFalse(os.path.exists(os.path.join(hf, "model.safetensors.index.json")))

    def test_types(self):
        for dtype, size in (("f16", 2), ("bf16", 2), ("f32", 4)):
            hf = self.path(dtype)
            self.ok("export", TINY, "-o", hf, "--dtype", dtype)
            n = sum(t["bytes"] // 4 for t in self.ok("tensor", TINY, "--json").json)
            self.assertGreaterEqual(os.path.getsize(os.path.join(hf, "model.safetensors")), n * size)
            self.ok("convert", hf, "-o", self.path(dtype + ".cmf"))
        self.fails(USAGE, "export", TINY, "-o", self.path("x"), "--dtype", "q8_row")

    def test_a_skill_takes_the_backbones_place(self):
        path = os.path.join(FILES, "tiny-skills.cmf")
        (skill, *_) = [s for s in self.ok("info", path, "--json").json["skills"] if s["tensors"]]
        self.ok("export", path, "-o", self.path("plain"))
        self.ok("export", path, "-o", self.path("skilled"), "--skill", skill["id"])
        for name in ("plain", "skilled"):
            self.ok("convert", self.path(name), "-o", self.path(name + ".cmf"), "--quant", "f32")
        d = tool.run("diff", self.path("plain.cmf"), self.path("skilled.cmf"), "--json").json
        self.assertEqual(len(d["tensors"]["changed"]), skill["tensors"])
        self.fails(FAILED, "export", path, "-o", self.path("x"), "--skill", "nobody")

    def test_damage_is_not_exported(self):
        bad = tool.copy_tiny(self.path("bad.cmf"), flip=-6000)
        r = tool.run("export", bad, "-o", self.path("hf"))
        self.assertEqual(r.rc, FAILED)
        self.assertFalse(os.path.exists(os.path.join(self.path("hf"), "config.json")))


if __name__ == "__main__":
    tool.main()
