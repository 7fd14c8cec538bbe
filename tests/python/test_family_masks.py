#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Task masks of latent and linear attention models: a mask that `masks make` wrote, read by this
reader, against the same file with zeros where it says off, run without a mask."""
import os
import shutil
import subprocess
import sys
import unittest

import support  # first: without numpy it skips the whole program
import numpy as np

from caisson_cmf import Model

TOOL = os.path.join(support.BUILD, "caisson")
FAMILIES = os.path.join(support.ROOT, "tests", "golden", "families")
EVAL = ("--tokens", "5,9,20,33,17,3,8", "--decode", "4", "--all", "--top", "20", "--json",
        "--compute", "f32", "-ctk", "f32", "-ctv", "f32")
NEVER = np.float32(-1e30)  # a bias with which an expert is never chosen


def tool(*args, ok=True):
    p = subprocess.run([TOOL, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=200)
    if (p.returncode == 0) != ok:
        raise AssertionError("%s: %d\n%s" % (args, p.returncode, p.stderr.decode()))
    return (p.stdout if ok else p.stderr).decode()


def patch(path, tensor, values):
    """Overwrites an f32 payload; hashes are looked at by verify, which is not asked."""
    with open(path, "r+b") as f:
        f.seek(tensor.file.payload_offset(tensor.entry))
        f.write(values.astype("<f4").tobytes())


@unittest.skipUnless(os.access(TOOL, os.X_OK), "the tool is not built")
class FamilyMasks(support.Case):
    def make(self, family, *options, quant="f32"):
        path = self.scratch(family + quant + ".cmf")
        with open(self.scratch("text"), "w") as f:
            f.write("hello world, the quick brown fox jumps over it all day and night")
        tool("convert", os.path.join(FAMILIES, family), "-o", path, "--quant", quant)
        plain = self.scratch("plain.cmf")
        shutil.copyfile(path, plain)
        tool("masks", "make", path, "a", "--text", self.scratch("text"), *options)
        return path, plain

    def check(self, family):
        path, plain = self.make(family, "--sparsity", "0.5", "--scattered")
        mask, model = Model(path).masks.named("a"), Model(plain)
        n_neurons = n_experts = 0
        for i in range(model.arch["num_layers"]):
            down = model.tensors.get("model.layers.%d.mlp.down_proj.weight" % i)
            bias = model.tensors.get("model.layers.%d.mlp.expert_bias" % i)
            if down is not None:
                values = down.values().copy()
                off = ~np.array(mask.ffn[i][:values.shape[1]], bool)
                values[:, off] = 0
                patch(plain, down, values)
                n_neurons += off.sum()
            if bias is not None:
                values = bias.values().copy()
                off = ~np.array(mask.experts[i][:len(values)], bool)
                values[off] = NEVER
                patch(plain, bias, values)
                n_experts += off.sum()
        self.assertGreater(n_neurons, 0)
        self.assertGreater(n_experts, 0)
        want = tool("eval", plain, *EVAL)
        self.assertEqual(tool("eval", path, *EVAL, "--task", "a"), want)
        self.assertNotEqual(tool("eval", path, *EVAL, "--task", "none"), want)

    def test_neurons_and_experts_of_kimi_linear(self):
        self.check("kimi_linear")

    def test_neurons_and_experts_of_deepseek(self):
        self.check("deepseek_v3_direct")

    def heads_off(self, model, mask):
        """(layer, its o_proj, columns of one head, heads that are off)"""
        for i in range(model.arch["num_layers"]):
            kda = model.tensors.get("model.layers.%d.kda_attn.o_proj.weight" % i)
            o = kda or model.tensors["model.layers.%d.self_attn.o_proj.weight" % i]
            n = model.arch["linear_num_value_heads" if kda else "num_attention_heads"]
            yield i, o, o.values().shape[1] // n, [h for h in range(n) if not mask.heads[i][h]]

    def check_heads(self, family):
        """f32: columns of o_proj. int8: what makes values, for a group of 32 columns has one scale."""
        path, plain = self.make(family, "--sparsity", "0", "--head-sparsity", "0.5")
        mask, model = Model(path).masks.named("a"), Model(plain)
        for _, o, width, off in self.heads_off(model, mask):
            self.assertGreater(len(off), 0)
            values = o.values().copy()
            for h in off:
                values[:, h * width:(h + 1) * width] = 0
            patch(plain, o, values)
        self.compare(path, plain, EVAL)

        path, plain = self.make(family, "--sparsity", "0", "--head-sparsity", "0.5", quant="q8_row")
        mask, model = Model(path).masks.named("a"), Model(plain)
        for i, _, width, off in self.heads_off(model, mask):
            kda = model.tensors.get("model.layers.%d.kda_attn.v_proj.weight" % i)
            source = kda or model.tensors["model.layers.%d.self_attn.kv_b_proj.weight" % i]
            rows, cols = source.values().shape
            step = width if kda else rows // model.arch["num_attention_heads"]  # keys, then values
            with open(plain, "r+b") as f:
                for h in off:
                    f.seek(source.file.payload_offset(source.entry) + ((h + 1) * step - width) * cols)
                    f.write(bytes(width * cols))
        self.compare(path, plain, ("--tokens", "5,9,20,33,17,3,8", "--decode", "4", "--all", "--top", "20", "--json",
                                   "--compute", "int8"))

    def compare(self, path, plain, args):
        want = tool("eval", plain, *args)
        self.assertNotEqual(tool("eval", path, *args, "--task", "none"), want)
        for split in (("-t", "1"), ("-t", "3"), ("-t", "2", "-ub", "1")):
            self.assertEqual(tool("eval", path, *args, *split, "--task", "a"), want)

    def test_heads_of_kimi_linear(self):
        self.check_heads("kimi_linear")

    def test_heads_of_kimi_k3(self):
        self.check_heads("kimi_k3")

    def test_heads_of_deepseek(self):
        self.check_heads("deepseek_v3")


if __name__ == "__main__":
    support.main()
