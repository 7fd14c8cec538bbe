#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""synth: containers of random weights, read by a reader of the tests' own."""
import fcntl
import os
import sys

import support  # first: without numpy it skips the whole program
import numpy as np

from warp_reader import Warp

sys.path.insert(0, os.path.join(support.ROOT, "tests", "cli"))
import tool  # noqa: E402
from tool import FAILED, USAGE  # noqa: E402

FAMILIES = ("kimi_linear", "kimi_k3", "deepseek_v3")
OTHERS = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "gemma2", "gemma3_text", "deepseek_v2",
          "qwen2_moe", "qwen3_moe")


def files(path):
    return {name: tool.read(os.path.join(path, name)) for name in sorted(os.listdir(path))}


class Synth(tool.Case):
    def make(self, name="m.waste", family="kimi_linear", *args):
        path = self.path(name)
        self.ok("synth", "--family", family, "-o", path, *args)
        return path

    def test_every_family_and_coding_is_a_valid_container(self):
        for family in FAMILIES:
            for coding in ("vq3r", "vq2r", "vq4p"):
                w = Warp(self.make(family + coding + ".waste", family, "-q", coding))
                self.assertEqual(w.manifest["expert_quant"]["fmt"], coding.upper())
                self.assertEqual(w.check(), 16 * (w.config["num_hidden_layers"] - 1))
                self.assertLess(sum(map(len, files(w.path).values())), 10 << 20)

    def test_layers_are_of_the_kinds_that_the_config_says(self):
        w = Warp(self.make())
        kda = w.config["linear_attn_config"]["kda_layers"]
        self.assertEqual(kda, [1, 2, 3])
        self.assertEqual(w.config["linear_attn_config"]["full_attn_layers"], [4, 5])
        for i in range(5):
            p = "model.layers.%d.self_attn." % i
            self.assertEqual(p + "A_log" in w.trunk, i + 1 in kda)
            self.assertEqual(p + "kv_b_proj.weight" in w.trunk, i + 1 not in kda)

    def test_weights_keep_the_size_of_what_they_multiply(self):
        w = Warp(self.make())
        for kind in ("gate", "up", "down"):
            x = w.expert(1, 3, kind)
            self.assertTrue(0.7 < np.sqrt((x * x).sum(1).mean()) / 1.5 < 1.4, kind)
        x = w.tensor("model.layers.1.block_sparse_moe.shared_experts.up_proj.weight")
        self.assertTrue(0.8 < np.sqrt((x * x).sum(1).mean()) < 1.25)

    def test_the_same_seed_gives_the_same_bytes_whatever_the_threads(self):
        one = files(self.make("1.waste", "kimi_k3", "--seed", 5, "-t", 1))
        self.assertEqual(one, files(self.make("3.waste", "kimi_k3", "--seed", 5, "-t", 3)))
        other = files(self.make("o.waste", "kimi_k3", "--seed", 6))
        self.assertNotEqual(one["experts-L1.bin"], other["experts-L1.bin"])
        self.assertNotEqual(one["trunk.bin"], other["trunk.bin"])

    def test_every_family_makes_a_cmf_that_runs_and_chats(self):
        for family in FAMILIES + OTHERS:
            path = self.path(family + ".cmf")
            self.ok("synth", "--family", family, "-o", path)
            self.assertLess(os.path.getsize(path), 10 << 20)
            self.assertTrue(self.ok("verify", path, "--json").json[0]["valid"], family)
            one = self.ok("run", path, "the city", "-n", 8, "--temp", 0).out
            self.assertEqual(self.ok("run", path, "the city", "-n", 8, "--temp", 0).out, one)
            logits = [self.ok("eval", path, "--tokens", t, "--json").json["positions"] for t in ("5,6", "7,6")]
            self.assertNotEqual(logits[0], logits[1], family)
            self.ok("chat", path, "-n", 4, stdin=b"hello\n")

    def test_a_cmf_has_the_type_asked_for_and_the_same_bytes_whatever_the_threads(self):
        args = ("synth", "--family", "qwen3_moe", "--seed", 3, "-q", "q4_tiled")
        self.ok(*args, "-o", self.path("1.cmf"), "-t", 1)
        self.ok(*args, "-o", self.path("3.cmf"), "-t", 3)
        self.assertEqual(tool.read(self.path("1.cmf")), tool.read(self.path("3.cmf")))
        types = {t["name"]: t["dtype"] for t in self.ok("tensor", self.path("1.cmf"), "--json").json}
        self.assertEqual(types["model.layers.1.mlp.experts.3.up_proj.weight"], "q4_tiled")
        r = self.fails(FAILED, *args, "-o", self.path("1.cmf"))
        self.assertIn("exists", r.err)
        r = self.fails(FAILED, "synth", "--family", "llama", "-o", self.path("m.waste"))
        self.assertIn("cannot hold this family", r.err)

    def test_layers_can_be_chosen(self):
        w = Warp(self.make("m.waste", "deepseek_v3", "--layers", 7))
        self.assertEqual(w.config["num_hidden_layers"], 7)
        self.assertEqual(sorted(map(int, w.manifest["layers"])), [1, 2, 3, 4, 5, 6])
        r = self.fails(FAILED, "synth", "--family", "kimi_k3", "--layers", 1, "-o", self.path("x.waste"))
        self.assertIn("so few layers", r.err)
        r = self.fails(FAILED, "synth", "--family", "deepseek_v3", "--layers", 129, "-o", self.path("x.waste"))
        self.assertIn("config, num_hidden_layers: out of range (want 128, got 129)", r.err)
        self.assertNotIn(".part", r.err)

    def test_a_waste_model_runs(self):
        path = self.make()
        out = self.ok("run", path, "the city", "-n", 8, "--temp", 0).out
        self.assertTrue(out.strip())
        self.ok("chat", path, "-n", 4, stdin=b"hello\n")

    def test_only_a_model_is_replaced(self):
        path = self.make()
        before = files(path)
        r = self.fails(FAILED, "synth", "--family", "kimi_linear", "--seed", 9, "-o", path)
        self.assertIn("exists", r.err)
        self.assertEqual(files(path), before)
        self.make("m.waste", "kimi_linear", "--seed", 9, "--force")
        self.assertNotEqual(files(path)["trunk.bin"], before["trunk.bin"])
        self.assertEqual(os.listdir(self.dir), ["m.waste"])
        other = self.path("d.waste")
        os.mkdir(other)
        with open(os.path.join(other, "mine.txt"), "w", encoding="utf-8") as f:
            f.write("mine")
        r = self.fails(FAILED, "synth", "--family", "kimi_linear", "-o", other, "--force")
        self.assertIn("no WARP model", r.err)
        self.assertEqual(os.listdir(other), ["mine.txt"])

    def test_one_writer_at_a_time(self):
        lock = self.path("m.waste.part.lock")
        with open(lock, "w", encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            r = self.fails(FAILED, "synth", "--family", "kimi_linear", "-o", self.path("m.waste"))
            self.assertIn("another conversion", r.err)
        self.make()
        self.assertEqual(os.listdir(self.dir), ["m.waste"])

    def test_wrong_words(self):
        self.fails(USAGE, "synth", "-o", self.path("m.waste"))
        self.fails(USAGE, "synth", "--family", "gpt", "-o", self.path("m.waste"))
        r = self.fails(FAILED, "synth", "--family", "kimi_linear", "-q", "q8", "-o", self.path("m.waste"))
        self.assertIn("vq3r, vq2r or vq4p", r.err)
        self.assertEqual(os.listdir(self.dir), [])


if __name__ == "__main__":
    tool.main()
