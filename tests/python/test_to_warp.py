#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""convert SRC -o OUT.waste: what a reader of the tests' own finds in it, against the source."""
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

import support  # first: without numpy it skips the whole program
import numpy as np

from caisson_cmf import Model
from warp_reader import KINDS, Warp

sys.path.insert(0, os.path.join(support.ROOT, "tests", "cli"))
import tool  # noqa: E402
from tool import FAILED, USAGE  # noqa: E402

GOLDEN = os.path.join(support.ROOT, "tests", "golden", "families")
MEMBERS = {"mlp.": {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"},
           "block_sparse_moe.": {"gate": "w1", "up": "w3", "down": "w2"}}


def safetensors(path):
    """name -> f32 array; bf16 and f32 sources."""
    raw = tool.read(path)
    n = struct.unpack_from("<Q", raw)[0]
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        data = raw[8 + n + a:8 + n + b]
        if t["dtype"] == "BF16":
            x = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            x = np.frombuffer(data, {"F32": "<f4", "F16": "<f2"}[t["dtype"]]).astype(np.float32)
        out[name] = x.reshape(t["shape"])
    return out


def error(got, want):
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


class ToWarp(tool.Case):
    def convert(self, family, *args, out="m.waste"):
        r = self.ok("convert", os.path.join(GOLDEN, family), "-o", self.path(out), "--json", *args)
        return Warp(self.path(out)), {t["name"]: t for t in r.json["tensors"]}

    def check_against(self, family, w, told, most):
        source = safetensors(os.path.join(GOLDEN, family, "model.safetensors"))
        moe = next(m for m in MEMBERS if any(m + "experts." in n for n in source))
        n_experts = w.check()
        for layer in w.manifest["layers"]:
            for e in range(w.config["num_experts"]):
                for kind in KINDS:
                    name = "model.layers.%s.%sexperts.%d.%s.weight" % (layer, moe, e, MEMBERS[moe][kind])
                    cmf = "model.layers.%s.mlp.experts.%d.%s_proj.weight" % (layer, e, kind)
                    got = error(w.expert(int(layer), e, kind), source.pop(name))
                    self.assertLess(got, most)
                    self.assertAlmostEqual(got, told[cmf]["relative_error"], delta=2e-4)
        for name, t in w.trunk.items():
            ours = name
            if name not in source and ".block_sparse_moe." in name:
                ours = name.replace(".block_sparse_moe.", ".mlp.")
            x = source.pop(ours).reshape(t["shape"])
            self.assertTrue((w.tensor(name) == x).all(), name)  # all are small: f32
        behind = "model.layers.%d." % w.config["num_hidden_layers"]  # predicts one more token
        self.assertEqual([n for n in source if not n.startswith(behind)], [])
        self.assertEqual(list(w.trunk), sorted(w.trunk))
        return n_experts

    def test_weights_are_those_of_the_source(self):
        for family in ("kimi_linear", "deepseek_v3"):
            for coding, most in (("vq3r", 0.12), ("vq2r", 0.3), ("vq4p", 0.35)):
                w, told = self.convert(family, "--expert-quant", coding, "--force")
                self.check_against(family, w, told, most)

    def test_config_says_what_the_source_said(self):
        w, _ = self.convert("kimi_linear")
        config = json.loads(tool.read(os.path.join(GOLDEN, "kimi_linear", "config.json")))
        for key in ("hidden_size", "num_hidden_layers", "vocab_size", "num_attention_heads", "num_experts",
                    "num_experts_per_token", "moe_intermediate_size", "intermediate_size",
                    "routed_scaling_factor", "rms_norm_eps", "kv_lora_rank",
                    "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            self.assertEqual(w.config[key], config[key], key)
        self.assertIs(w.config["mla_use_nope"], True)
        kda = [i + 1 for i, t in enumerate(config["layer_types"]) if t == "linear_attention"]
        self.assertEqual(w.config["linear_attn_config"]["kda_layers"], kda)
        dense = config["mlp_layer_types"].index("sparse")
        self.assertEqual(w.config["first_k_dense_replace"], dense)
        self.assertEqual("moe_renormalize" in w.config, bool(config["moe_renormalize"]))
        w, _ = self.convert("deepseek_v3", out="d.waste")
        self.assertEqual((w.config["n_group"], w.config["topk_group"]), (4, 2))
        self.assertIs(w.config["mla_use_nope"], False)
        self.assertEqual(w.config["rope_scaling"]["mscale"], w.config["rope_scaling"]["mscale_all_dim"])

    def test_a_cmf_gives_the_same_as_its_source(self):
        self.ok("convert", os.path.join(GOLDEN, "kimi_linear"), "-q", "f32", "-o", self.path("m.cmf"))
        self.convert("kimi_linear")
        self.ok("convert", self.path("m.cmf"), "-o", self.path("c.waste"))
        for name in ("trunk.bin", "codebooks.bin", "experts-L1.bin", "experts-L3.bin"):
            self.assertEqual(tool.read(self.path("m.waste/" + name)), tool.read(self.path("c.waste/" + name)))

    def test_a_warp_directory_becomes_a_cmf_of_the_same_values_and_tokens(self):
        for family, coding in (("kimi_linear", "vq3r"), ("kimi_k3", "vq4p"), ("deepseek_v3", "vq2r")):
            waste, cmf = self.path(family + ".waste"), self.path(family + ".cmf")
            self.ok("synth", "--family", family, "-q", coding, "-o", waste)
            self.ok("convert", waste, "-q", "f32", "-o", cmf)
            w, m = Warp(waste), Model(cmf)
            n = 0
            for layer in w.manifest["layers"]:
                for e in range(w.config["num_experts"]):
                    for kind in KINDS:
                        name = "model.layers.%s.mlp.experts.%d.%s_proj.weight" % (layer, e, kind)
                        self.assertTrue((m.values(name) == w.expert(int(layer), e, kind)).all(), name)
                        n += 1
            rest = [t["name"] for t in self.ok("tensor", cmf, "--json").json if ".experts." not in t["name"]]
            self.assertEqual(len(rest), len(w.trunk))
            name = w.manifest["tensor_prefix"] + "model.layers.0.mlp.up_proj.weight"
            self.assertTrue((m.values("model.layers.0.mlp.up_proj.weight") == w.tensor(name)).all())
            args = ("the city", "-n", 12, "--temp", 0, "--compute", "f32")
            if coding != "vq4p":  # whose products pass through a table of int8
                self.assertEqual(self.ok("run", waste, *args).out, self.ok("run", cmf, *args).out)

    def test_layers_may_all_be_linear(self):
        self.ok("synth", "--family", "kimi_linear", "--layers", 3, "-o", self.path("m.waste"))
        self.ok("convert", self.path("m.waste"), "-o", self.path("n.waste"), "--expert-quant", "vq2r")
        w = Warp(self.path("n.waste"))
        self.assertEqual(w.config["linear_attn_config"]["full_attn_layers"], [])
        self.assertEqual(w.check(), 32)

    def test_a_damaged_record_is_not_converted(self):
        self.ok("synth", "--family", "kimi_linear", "-o", self.path("m.waste"))
        with open(self.path("m.waste/experts-L2.bin"), "r+b") as f:
            f.seek(100)
            f.write(b"\x55\xaa")
        r = self.fails(FAILED, "convert", self.path("m.waste"), "-o", self.path("m.cmf"))
        self.assertIn("experts.0", r.err)

    def test_trunk_bits(self):
        # a synthetic model's matrices are large enough to be quantised
        self.ok("synth", "--family", "kimi_linear", "-o", self.path("s.waste"))
        w = Warp(self.path("s.waste"))
        names = {t["name"]: t["fmt"] for t in w.trunk.values()}
        self.assertEqual(names["lm_head.weight"], 2)
        self.assertEqual(names["model.layers.0.mlp.gate_proj.weight"], 3)
        self.assertEqual(names["model.layers.0.self_attn.q_proj.weight"], 0)

    def test_what_warp_cannot_say_is_refused_by_name(self):
        for family, word in (("qwen3_moe", "latent"), ("llama", "latent"),
                             ("deepseek_v3_direct", "neighbouring pairs")):
            r = self.fails(FAILED, "convert", os.path.join(GOLDEN, family), "-o", self.path("m.waste"))
            self.assertIn(word, r.err)
        r = self.fails(FAILED, "convert", os.path.join(GOLDEN, "kimi_k3"), "-o", self.path("m.waste"))
        self.assertIn("multiples of 8", r.err)
        self.assertEqual(os.listdir(self.dir), [])

    def test_options_are_for_one_kind_of_target(self):
        source = os.path.join(GOLDEN, "kimi_linear")
        for args in (("-q", "q8_row"), ("--tensor", "*=f16"), ("--shard-max-size", "1M")):
            self.fails(USAGE, "convert", source, "-o", self.path("m.waste"), *args)
        self.fails(USAGE, "convert", source, "-o", self.path("m.cmf"), "--expert-quant", "vq3r")
        self.fails(FAILED, "convert", source, "-o", self.path("m.waste"), "--trunk-bits", "5")

    def test_ranks_go_along_with_their_special_tokens(self):
        source = self.path("src")
        shutil.copytree(os.path.join(GOLDEN, "kimi_linear"), source)
        ranks = "".join("%s %d\n" % (__import__("base64").b64encode(bytes([i])).decode(), i) for i in range(80))
        with open(os.path.join(source, "tiktoken.model"), "w", encoding="utf-8") as f:
            f.write(ranks)
        added = ["[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_system|>", "<|im_assistant|>",
                 "<|im_middle|>"]
        with open(os.path.join(source, "tokenizer_config.json"), "w", encoding="utf-8") as f:
            json.dump({"added_tokens_decoder": {str(80 + i): {"content": t} for i, t in enumerate(added)}}, f)
        self.ok("convert", source, "-o", self.path("m.waste"))
        self.assertEqual(tool.read(self.path("m.waste/tokenizer.model")).decode(), ranks)
        specials = json.loads(tool.read(self.path("m.waste/specials.json")))
        self.assertEqual(specials, [{"id": 80 + i, "text": t} for i, t in enumerate(added)])
        chat = json.loads(tool.read(self.path("m.waste/chat.json")))
        self.assertEqual(chat["open"], "<|im_assistant|>assistant<|im_middle|>")
        self.assertFalse(os.path.exists(self.path("m.waste/tokenizer.json")))

    def test_killed_at_any_time_it_goes_on(self):
        source, out = os.path.join(GOLDEN, "kimi_linear"), self.path("m.waste")
        want, _ = self.convert("kimi_linear", out="want.waste")
        want = {n: tool.read(os.path.join(want.path, n)) for n in os.listdir(want.path)}
        n_killed = 0
        for delay in (0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2):
            p = subprocess.Popen([tool.TOOL, "convert", source, "-o", out, "-t", "1"],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=tool.env())
            time.sleep(delay)
            p.send_signal(signal.SIGKILL)
            n_killed += p.wait() == -signal.SIGKILL
            self.assertIn(sorted(set(os.listdir(self.dir)) - {"want.waste"})[:1],
                          ([], ["m.waste"], ["m.waste.part"], ["m.waste.part.lock"]))
            if os.path.exists(out):
                break
        self.assertGreater(n_killed, 0)
        if not os.path.exists(out):
            self.ok("convert", source, "-o", out)
        self.assertEqual({n: tool.read(os.path.join(out, n)) for n in os.listdir(out)}, want)
        self.ok("convert", source, "-o", out, "-f")
        self.assertEqual(sorted(os.listdir(self.dir)), ["m.waste", "want.waste"])

    def test_only_a_model_is_replaced_and_that_is_told_at_once(self):
        source, out = os.path.join(GOLDEN, "kimi_linear"), self.path("m.waste")
        self.ok("convert", source, "-o", out)
        before = {n: tool.read(os.path.join(out, n)) for n in os.listdir(out)}
        os.mkdir(os.path.join(out, "notes"))
        for target in (out, self.path("f.waste"), self.path("d.waste")):
            if target.endswith("f.waste"):
                with open(target, "wb") as f:
                    f.write(b"mine")
            elif target.endswith("d.waste"):
                os.mkdir(target)
            r = self.fails(FAILED, "convert", source, "-o", target, "-f")
            self.assertIn("left alone", r.err)
            self.assertNotIn("--force", r.err)
            self.assertNotIn("list of ranks", r.err)  # said once the trunk and the experts are there
        self.assertEqual(sorted(os.listdir(self.dir)), ["d.waste", "f.waste", "m.waste"])
        os.rmdir(os.path.join(out, "notes"))
        self.assertEqual({n: tool.read(os.path.join(out, n)) for n in os.listdir(out)}, before)
        r = self.fails(FAILED, "convert", source, "-o", out)
        self.assertIn("--force", r.err)

    def test_of_what_was_done_before_nothing_is_claimed(self):
        source, out = os.path.join(GOLDEN, "kimi_linear"), self.path("m.waste")
        for args in ((), ("--json",)):
            r, w = os.pipe()
            os.close(r)  # its first line, when the trunk and the experts are there, ends it
            p = subprocess.run([tool.TOOL, "convert", source, "-o", out], stdout=subprocess.DEVNULL,
                               stderr=w, env=tool.env())
            os.close(w)
            self.assertEqual(p.returncode, -signal.SIGPIPE)
            r = self.ok("convert", source, "-o", out, *args)
            n = len(self.ok("tensor", out, "--json").json)
            if args:
                self.assertEqual((r.json["n_done_before"], r.json["tensors"]), (n, []))
            else:
                self.assertIn(f"{n} tensors were done before", r.out)
                self.assertIn(f": {n} tensors, ", r.out)
                self.assertNotIn("rounded", r.out)
                self.assertNotIn("bits a weight", r.out)
            shutil.rmtree(out)
        r = self.ok("convert", source, "-o", out, "--json").json
        self.assertEqual((r["n_done_before"], len(r["tensors"])), (0, n))

    def test_of_a_link_the_link_is_replaced(self):
        source, real, out = os.path.join(GOLDEN, "kimi_linear"), self.path("real.waste"), self.path("m.waste")
        self.ok("convert", source, "-o", real)
        os.symlink("real.waste", out)
        self.ok("convert", source, "-o", out, "-f", "--expert-quant", "vq2r")
        self.assertFalse(os.path.islink(out))
        self.ok("verify", real, out)
        self.assertEqual(sorted(os.listdir(self.dir)), ["m.waste", "real.waste"])


if __name__ == "__main__":
    tool.main()
