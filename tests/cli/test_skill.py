#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Skills from the command line, on the reference's tiny file with two of them.

What transformers says of it is tests/golden/cli/skill_route.json (tests/oracle/skill_route.py)."""
import base64
import glob
import hashlib
import json
import math
import os
import struct

import tool
from test_convert import make_hf
from tool import FAILED, USAGE

SKILLS = os.path.join(tool.FILES, "tiny-skills.cmf")
ORACLE = json.loads(tool.read(os.path.join(tool.ROOT, "tests", "golden", "cli",
                                           "skill_route.json")))


class List(tool.Case):
    def test_list(self):
        skills = {s["id"]: s for s in self.ok("skill", "list", SKILLS, "--json").json}
        self.assertEqual(skills["sql"]["layers"], [1])
        self.assertEqual(skills["sql"]["selection"], {"metric": "mse", "phi_layer": 1, "rank": 2})
        self.assertEqual(skills["poem"]["selection"]["metric"], "mse_unit")
        self.assertEqual(len(self.ok("skill", "list", SKILLS).out.splitlines()), 2)
        self.assertEqual(self.ok("skill", "list", tool.TINY).out, "no skills\n")


class Route(tool.Case):
    def test_errors_are_those_of_the_format(self):
        for want in ORACLE["routes"]:
            r = self.ok("skill", "route", SKILLS, "-p", want["prompt"], "--json").json
            self.assertEqual((r["winner"], r["is_novel"]), (want["winner"], want["is_novel"]))
            for got in r["skills"]:
                for key in ("raw", "error"):
                    self.assertAlmostEqual(got[key] / want["scores"][got["id"]][key], 1, delta=1e-5)
            for key in ("margin", "novelty"):
                self.assertAlmostEqual(r[key], want[key], delta=1e-5)

    def test_the_bits_do_not_depend_on_threads_or_batches(self):
        args = ("skill", "route", SKILLS, "-p", ORACLE["routes"][1]["prompt"], "--json")
        self.assertEqual(self.ok(*args, "-t", "1").raw, self.ok(*args, "-t", "3").raw)

    def test_run_auto_is_run_with_the_winner(self):
        args = ("run", SKILLS, "--raw", "-p", "hello world", "--temp", "0", "-n", "12", "--task",
                "none")
        r = self.ok(*args, "--skill", "auto")
        self.assertIn("poem", r.err)
        self.assertEqual(r.out, self.ok(*args, "--skill", "poem").out)
        self.assertNotEqual(r.out, self.ok(*args).out)

    def test_a_file_without_descriptors_runs_its_base(self):
        args = ("run", tool.TINY, "--raw", "-p", "hello world", "--temp", "0", "-n", "4")
        r = self.ok(*args, "--skill", "auto")
        self.assertEqual(r.out, self.ok(*args).out)
        self.assertIn("describes", r.err)
        self.assertIsNone(self.ok("skill", "route", tool.TINY, "-p", "a", "--json").json["winner"])

    def test_auto_is_no_id(self):
        self.fails(FAILED, "chat", SKILLS, "--skill", "auto")
        self.fails(USAGE, "skill", "route", SKILLS)
        self.fails(USAGE, "skill", "praise", SKILLS)


class Blend(tool.Case):
    def test_blends_are_weighted_sums_of_tensors(self):
        for want in ORACLE["blends"]:
            parts = ",".join("%s=%g" % part for part in want["parts"].items())
            r = self.ok("skill", "explain", SKILLS, "-p", want["prompt"], "--blend", parts, "-ctk", "f32",
                        "-ctv", "f32", "--json").json
            self.assertEqual([t["id"] for t in r["top"]], want["ids"])
            for got, p in zip(r["top"], want["p"]):
                self.assertAlmostEqual(got["p"] / p, 1, delta=1e-5)
            self.assertEqual(r["confidence"], r["top"][0]["p"])

    def test_auto_takes_the_two_nearest(self):
        args = ("run", SKILLS, "--raw", "-p", "hello world", "--temp", "0", "-n", "12")
        error = {k: v["error"] for k, v in ORACLE["routes"][0]["scores"].items()}
        w = math.exp((error["sql"] - error["poem"]) / 0.4)
        self.assertEqual(self.ok(*args, "--blend", "auto").out,
                         self.ok(*args, "--blend", "sql=1,poem=%.9g" % w).out)

    def test_what_is_no_blend_is_refused(self):
        for bad in ("", "sql", "sql=", "=1", "sql=0", "sql=-1", "sql=nan", "sql=1,", "sql=1 2"):
            self.fails(USAGE, "run", SKILLS, "-p", "a", "--blend", bad)
        self.fails(USAGE, "run", SKILLS, "-p", "a", "--blend", "sql=1", "--skill", "sql")
        self.assertIn("poem sql",
                      self.fails(FAILED, "run", SKILLS, "-p", "a", "--blend", "sql=1,x=1").err)


class Chat(tool.Case):
    def test_skills_change_between_requests(self):
        answer = "hi\n/clear\n"
        talk = "/skill sql\n" + answer + "/skill poem\n" + answer + "/skill sql\n" + answer
        r = self.ok("chat", SKILLS, "--temp", "0", "-n", "12", "--task", "none",
                    stdin=talk.encode())
        alone = [self.ok("chat", SKILLS, "--temp", "0", "-n", "12", "--task", "none", "--skill", s,
                         stdin=b"hi\n").out for s in ("sql", "poem")]
        self.assertNotEqual(alone[0], alone[1])
        self.assertEqual(r.out, alone[0] + alone[1] + alone[0])

    def test_an_unknown_skill_changes_nothing(self):
        r = self.ok("chat", SKILLS, "--temp", "0", "-n", "4", "--skill", "sql",
                    stdin=b"/skill prose\nhi\n")
        self.assertIn("poem sql", r.err)
        self.assertEqual(r.out, self.ok("chat", SKILLS, "--temp", "0", "-n", "4", "--skill", "sql",
                                        stdin=b"hi\n").out)


class Dynamic(tool.Case):
    ARGS = ("run", SKILLS, "--raw", "-p", ORACLE["dynamic"]["prompt"], "--temp", "0", "--compute",
            "f32", "-ctk", "f32", "-ctv", "f32", "--ignore-eos", "--route-dynamic")

    def test_looks_see_what_the_format_says(self):
        want = ORACLE["dynamic"]
        r = self.ok(*self.ARGS, "-n", str(len(want["ids"])), "--trace", "--json").json["trace"]
        self.assertEqual([t["id"] for t in r], want["ids"][:-1])
        looks = {i + 1: t["error"] for i, t in enumerate(r) if t["is_look"]}
        checks = want["checks"][:len(looks)]  # the last token of all is not evaluated
        self.assertEqual(sorted(looks), [c["n_decoded"] for c in checks])
        for c in checks:  # poem replaces a norm too: only sql takes part
            self.assertAlmostEqual(looks[c["n_decoded"]] / c["scores"]["sql"]["error"], 1, delta=1e-4)
        self.assertTrue(all(t["skill"] is None for t in r))

    def test_hysteresis_by_options(self):
        r = self.ok(*self.ARGS, "-n", "24", "--route-e-on", "1.2", "--route-e-off", "1.3", "--trace")
        self.assertEqual([line.split()[0] for line in r.err.splitlines() if "switch" in line], ["15"])
        self.fails(FAILED, *self.ARGS, "--route-e-on", "0.9")

    def test_what_goes_together(self):
        self.fails(USAGE, *self.ARGS, "--skill", "sql")
        self.fails(USAGE, "run", SKILLS, "-p", "a", "--trace")
        self.assertIn("can be switched to",
                      self.fails(FAILED, "run", tool.TINY, "-p", "a", "--route-dynamic").err)


def fine_tune(path, changed):
    """Scales the tensors of make_hf's checkpoint that are named, by powers of two: exact in any type."""
    name = os.path.join(path, "model.safetensors")
    blob = bytearray(tool.read(name))
    n = struct.unpack_from("<Q", blob)[0]
    header = json.loads(blob[8:8 + n])
    for tensor, factor in changed.items():
        first, end = (8 + n + at for at in header[tensor]["data_offsets"])
        values = struct.unpack_from("<%df" % ((end - first) // 4), blob, first)
        struct.pack_into("<%df" % len(values), blob, first, *(v * factor for v in values))
    with open(name, "wb") as f:
        f.write(blob)


def halves(text):
    raw = base64.b64decode(text)
    return struct.unpack("<%de" % (len(raw) // 2), raw)


def raw_error(selection, phi):
    """Squared distance of phi from the skill's affine subspace (metric mse)."""
    r = [a - b for a, b in zip(phi, halves(selection["mean"]))]
    basis = halves(selection["basis"])
    rows = [basis[k * len(r):(k + 1) * len(r)] for k in range(selection["rank"])]
    return max(sum(x * x for x in r) - sum(sum(b * x for b, x in zip(row, r)) ** 2 for row in rows), 0)


def calibration(selections):
    """temperature and novelty_theta of the format's recipe, from the held-out states of all skills."""
    samples = []
    for i, s in enumerate(selections):
        phi, n = halves(s["holdout"]), s["holdout_n"]
        for k in range(n):
            state = phi[k * len(phi) // n:(k + 1) * len(phi) // n]
            samples.append((i, [raw_error(other, state) for other in selections]))

    def p(raw, t):
        e = [math.exp((min(raw) - x) / t) for x in raw]
        return [x / sum(e) for x in e]

    grid = [1e-3 * 1.15 ** k for k in range(149)]
    t = min(grid, key=lambda t: -sum(math.log(max(p(raw, t)[i], 1e-9)) for i, raw in samples))
    novelty = []
    for _, raw in samples:
        order = sorted(range(len(raw)), key=lambda i: raw[i])
        best = selections[order[0]]
        z = (raw[order[0]] - best["err_mean"]) / max(best["err_std"], 1e-4)
        margin = 1 / (1 + raw[order[0]]) - 1 / (1 + raw[order[1]])
        novelty.append(0.5 / (1 + math.exp(-z)) + 0.25 / (1 + 8 * margin)
                       + 0.25 * (1 - max(p(raw, t))))
    return t, min(sorted(novelty)[round(0.95 * (len(novelty) - 1))] + 1e-4, 0.999)


class Tuned(tool.Case):
    """A base, and a fine-tuned checkpoint of it."""
    CHANGED = {"model.layers.0.mlp.up_proj.weight": 2.0, "model.layers.1.self_attn.q_proj.weight": 0.5,
               "model.norm.weight": 2.0}
    IDS = ("--tokens", "5,90,200,33,17,301,8", "--decode", "8", "--all", "--top", "344", "--json")

    def setUp(self):
        super().setUp()
        self.base = self.path("base.cmf")
        self.convert(make_hf(self.path("hf")), self.base)
        self.donor = make_hf(self.path("donor"))
        fine_tune(self.donor, self.CHANGED)

    def convert(self, source, target, quant="q8_row"):
        self.ok("convert", source, "-o", target, "--quant", quant)


class Add(Tuned):
    def tensors(self):
        return sorted(t["name"] for t in self.ok("tensor", self.base, "--json").json
                      if t["name"].startswith("skill."))

    def test_the_skill_is_the_donor(self):
        before = tool.read(self.base)
        r = self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor, "--name", "S",
                    "--description", "a test", "--json").json
        self.assertEqual(sorted(t["name"] for t in r["tensors"]), sorted(self.CHANGED))
        deltas = {t["name"]: t["delta"] for t in r["tensors"]}
        for name, factor in self.CHANGED.items():  # against the base's rounded values
            self.assertAlmostEqual(deltas[name], abs(factor - 1), delta=0.01)
        self.assertEqual(self.tensors(), sorted("skill.s." + n for n in self.CHANGED))
        after = tool.read(self.base)
        self.assertEqual(after[128:len(before)], before[128:])  # only the envelope changed
        self.ok("verify", self.base)
        record = self.ok("skill", "list", self.base, "--json").json[0]
        self.assertEqual((record["id"], record["name"], record["layers"]), ("s", "S", [0, 1]))
        specialist = self.path("specialist.cmf")
        self.convert(self.donor, specialist)
        for compute in ("f32", "int8"):
            want = self.ok("eval", specialist, *self.IDS, "--compute", compute).json
            self.assertEqual(self.ok("eval", self.base, *self.IDS, "--compute", compute,
                                     "--skill", "s").json, want)
        # a .cmf is a donor as well, and any of its shards, and gives the same skill
        self.ok("skill", "add", self.base, "--id", "t", "--from", specialist)
        self.ok("split", specialist, "-o", self.path("cut.cmf"), "--shard-max-size", "40K")
        shards = sorted(glob.glob(self.path("cut-*.cmf")))
        self.assertGreater(len(shards), 1)
        self.ok("skill", "add", self.base, "--id", "u", "--from", shards[-1])
        hashes = {t["name"]: t["hash"] for t in self.ok("tensor", self.base, "--json").json}
        for name in self.CHANGED:
            for other in ("skill.t.", "skill.u."):
                self.assertEqual(hashes["skill.s." + name], hashes[other + name])

    def test_a_donor_of_the_base_s_type_is_taken_byte_for_byte(self):
        """Of every type, those too whose payload tells its own size; encoding again would lose."""
        specialist = self.path("specialist.cmf")
        for quant in ("f16", "bf16", "q8_row", "q8_2f", "q4_block", "q4_tiled", "q4tp", "vbit",
                      "vbit_ro", "q1", "q1s", "q1t"):
            for source, target in ((self.path("hf"), self.base), (self.donor, specialist)):
                self.ok("convert", source, "-o", target, "--quant", quant, "--force")
            self.ok("skill", "add", self.base, "--id", "s", "--from", specialist)
            self.ok("verify", self.base)
            theirs = {t["name"]: (t["dtype"], t["hash"])
                      for t in self.ok("tensor", specialist, "--json").json}
            mine = {t["name"]: (t["dtype"], t["hash"])
                    for t in self.ok("tensor", self.base, "--json").json}
            for name in self.CHANGED:
                self.assertEqual(mine["skill.s." + name], theirs[name], quant)

    def test_a_base_of_zeros_differs_from_whatever_is_not(self):
        zero = "model.layers.0.mlp.up_proj.weight"
        fine_tune(self.path("hf"), {zero: 0.0})
        self.ok("convert", self.path("hf"), "-o", self.base, "--quant", "f32", "--force")
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor, "--min-delta", "0.1")
        self.assertIn("skill.s." + zero, self.tensors())

    def test_what_tensors_cannot_say_is_refused(self):
        before = tool.read(self.base)
        config = json.loads(tool.read(os.path.join(self.donor, "config.json")))
        for key, value in (("rope_theta", 123456.0), ("rms_norm_eps", 0.25), ("hidden_act", "gelu_tanh")):
            with open(os.path.join(self.donor, "config.json"), "w") as f:
                json.dump({**config, key: value}, f)
            err = self.fails(FAILED, "skill", "add", self.base, "--id", "s", "--from", self.donor).err
            self.assertIn("arch.%s: the donor computes otherwise" % key, err)
            self.assertIn("got %s" % json.dumps(value), err)
        with open(os.path.join(self.donor, "config.json"), "w") as f:
            json.dump(config, f)
        specialist = self.path("specialist.cmf")
        self.ok("convert", self.donor, "-o", specialist, "--quant", "f32")
        fine_tune(self.donor, {"model.norm.weight": math.nan})
        self.fails(FAILED, "skill", "add", self.base, "--id", "s", "--from", self.donor)
        place = next(t for t in self.ok("tensor", specialist, "--json").json
                     if t["name"] == "model.norm.weight")
        with open(specialist, "r+b") as f:  # and in a .cmf, which opens with it; its hash is then wrong
            f.seek(place["offset"])
            f.write(struct.pack("<f", math.nan))
        self.fails(FAILED, "skill", "add", self.base, "--id", "s", "--from", specialist)
        self.assertEqual(tool.read(self.base), before)

    def test_families_and_deltas_choose(self):
        self.ok("skill", "add", self.base, "--id", "f", "--from", self.donor, "--tensors", "ffn")
        self.ok("skill", "add", self.base, "--id", "a", "--from", self.donor, "--tensors", "attn")
        self.ok("skill", "add", self.base, "--id", "d", "--from", self.donor, "--min-delta", "0.75")
        self.assertEqual(self.tensors(), sorted([
            "skill.f.model.layers.0.mlp.up_proj.weight",
            "skill.a.model.layers.1.self_attn.q_proj.weight",
            "skill.d.model.layers.0.mlp.up_proj.weight", "skill.d.model.norm.weight"]))

    def test_quant_is_of_matrices(self):
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor, "--quant", "f16")
        types = {t["name"]: t["dtype"] for t in self.ok("tensor", self.base, "--json").json}
        self.assertEqual(types["skill.s.model.layers.0.mlp.up_proj.weight"], "f16")
        self.assertEqual(types["skill.s.model.norm.weight"], types["model.norm.weight"])

    def test_prompts_make_it_routable(self):
        prompts = {"sql": ["SELECT name FROM t", "SELECT a, b FROM t WHERE", "INSERT INTO t VALUES"],
                   "fox": ["the quick brown fox", "the lazy dog jumps", "over the fox the dog"]}
        for name, lines in prompts.items():
            with open(self.path(name), "w") as f:
                f.write("\n".join(lines) + "\n\n")
            self.ok("skill", "add", self.base, "--id", name, "--from", self.donor, "--prompts",
                    self.path(name))
        for name, lines in prompts.items():
            for line in lines:  # with rank = prompts - 1 each lies in its own subspace
                r = self.ok("skill", "route", self.base, "-p", line, "--json").json
                self.assertEqual((r["winner"], r["is_novel"]), (name, False))
                self.assertLess(r["skills"][0]["error"], 1e-4)
        blob = tool.read(self.base)
        off, n = struct.unpack_from("<2Q", blob, 0x10)
        for record in json.loads(blob[off:off + n])["skills"]:
            s = record["selection"]
            self.assertEqual((s["metric"], s["phi_layer"], s["rank"]), ("mse", 1, 2))
            rows = struct.unpack("<64e", base64.b64decode(s["basis"]))
            for i in range(2):
                for k in range(2):
                    dot = sum(a * b for a, b in zip(rows[32 * i:32 * i + 32], rows[32 * k:32 * k + 32]))
                    self.assertAlmostEqual(dot, float(i == k), delta=2e-3)

    KINDS = {"sql": ["SELECT %s FROM t WHERE x" % c for c in "name id price town date size".split()],
             "fox": ["the %s fox jumps over it" % c for c in "quick brown lazy red old sly".split()]}

    def add_kinds(self, *options):
        for name, lines in self.KINDS.items():
            with open(self.path(name), "w") as f:
                f.write("\n".join(lines) + "\n")
            self.ok("skill", "add", self.base, "--id", name, "--from", self.donor, "--prompts",
                    self.path(name), *options)
        return self.header()

    def header(self):
        blob = tool.read(self.base)
        off, n = struct.unpack_from("<2Q", blob, 0x10)
        return json.loads(blob[off:off + n])

    def test_held_out_prompts_calibrate_the_routing(self):
        h = self.add_kinds("--holdout", "3", "--phi-layer", "0")
        selections = [s["selection"] for s in h["skills"]]
        for (name, lines), s in zip(self.KINDS.items(), selections):
            self.assertEqual((s["phi_layer"], s["holdout_n"]), (0, 2))
            raw = []
            for i, line in enumerate(lines):
                got = self.ok("skill", "route", self.base, "-p", line, "--json").json
                raw.append([x["raw"] for x in got["skills"] if x["id"] == name][0])
                self.assertEqual(got["winner"], name)
            fitted = [r for i, r in enumerate(raw) if (i + 1) % 3]
            held = [r for i, r in enumerate(raw) if not (i + 1) % 3]
            mean = sum(fitted) / len(fitted)
            std = math.sqrt(sum((r - mean) ** 2 for r in fitted) / len(fitted))
            self.assertAlmostEqual(s["err_mean"] / mean, 1, delta=1e-4)
            self.assertAlmostEqual(s["err_std"] / std, 1, delta=1e-3)
            phi = halves(s["holdout"])
            for k in range(2):  # the states are f16
                self.assertAlmostEqual(raw_error(s, phi[32 * k:32 * k + 32]) / held[k], 1, delta=0.02)
        t, theta = calibration(selections)
        self.assertAlmostEqual(h["routing"]["temperature"] / t, 1, delta=1e-5)
        self.assertAlmostEqual(h["routing"]["novelty_theta"], theta, delta=1e-5)
        self.assertEqual((h["routing"]["samples"], h["routing"]["target_fpr"]), (4, 0.05))
        got = self.ok("skill", "route", self.base, "-p", self.KINDS["sql"][0], "--json").json
        self.assertIn("novelty", got)
        self.ok("skill", "remove", self.base, "fox")
        self.assertEqual(self.header()["routing"]["samples"], 2)
        self.ok("verify", self.base)

    def test_every_fifth_prompt_is_held_out_by_default(self):
        h = self.add_kinds()
        self.assertEqual([s["selection"]["holdout_n"] for s in h["skills"]], [1, 1])
        self.assertEqual(h["routing"]["samples"], 2)

    def test_without_held_out_prompts_nothing_is_calibrated(self):
        h = self.add_kinds("--holdout", "0")
        self.assertNotIn("routing", h)
        self.assertNotIn("holdout", h["skills"][0]["selection"])
        self.assertGreaterEqual(h["skills"][0]["selection"]["err_mean"], 0)
        self.assertIn("phi_layer", self.fails(FAILED, "skill", "add", self.base, "--id", "x", "--from",
                                              self.donor, "--prompts", self.path("sql"),
                                              "--phi-layer", "2").err)

    def test_layers_are_chosen(self):
        add = ("skill", "add", self.base, "--from", self.donor, "--layers")
        self.ok(*add, "1", "--id", "b")
        self.ok(*add, "0,1", "--id", "c")
        self.ok(*add, "0-1", "--id", "d", "--tensors", "ffn")
        up, q = (n for n in self.CHANGED if n.startswith("model.layers."))
        self.assertEqual(self.tensors(), ["skill.b." + q, "skill.c." + up, "skill.c." + q,
                                          "skill.d." + up])
        for bad in ("2", "1-0", "x", "0,", "0-", "0-2", "-1"):
            self.assertIn("layers", self.fails(FAILED, *add, bad, "--id", "z").err)

    def test_shards_take_skills_too(self):
        ids = self.IDS + ("--skill", "s")
        self.ok("split", self.base, "-o", self.path("p.cmf"), "--shard-max-size", "40K")
        shards = sorted(glob.glob(self.path("p-*.cmf")))
        self.assertGreater(len(shards), 1)
        before = [tool.read(s) for s in shards]
        for path in (self.base, shards[-1]):
            self.ok("skill", "add", path, "--id", "s", "--from", self.donor)
        after = [tool.read(s) for s in shards]
        self.assertEqual(after[1:], before[1:])
        self.assertEqual(after[0][128:len(before[0])], before[0][128:])
        want = self.ok("eval", self.base, *ids).json
        self.assertEqual(self.ok("eval", shards[0], *ids).json, want)
        text = self.path("text")
        with open(text, "w") as f:
            f.write("The quick brown fox jumps over the lazy dog. " * 30)
        self.ok("skill", "quality", shards[1], "s", "--text", text)
        self.assertIn("ppl", self.ok("skill", "list", shards[1]).out)
        # cut again, so that the skill's tensors lie in several shards, and removed from all of them
        self.ok("split", shards[0], "-o", self.path("q.cmf"), "--shard-max-size", "30K")
        cut = sorted(glob.glob(self.path("q-*.cmf")))
        holders = {t["shard"] for t in self.ok("tensor", cut[0], "--json").json
                   if t["name"].startswith("skill.s.")}
        self.assertGreater(max(holders), 1)
        self.assertEqual(self.ok("eval", cut[1], *ids).json, want)
        self.ok("skill", "remove", cut[1], "s")
        self.assertEqual(self.ok("skill", "list", cut[0]).out, "no skills\n")
        self.assertFalse([t for t in self.ok("tensor", cut[0], "--json").json
                          if t["name"].startswith("skill.")])
        for path in cut + shards:
            self.ok("verify", path)

    def test_a_skill_brings_its_mask(self):
        text = self.path("text")
        with open(text, "w") as f:
            f.write("The quick brown fox jumps over the lazy dog. " * 30)
        self.ok("masks", "make", self.base, "half", "--text", text, "--scattered")
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor, "--mask", "half")
        run = ("eval", self.base, *self.IDS, "--skill", "s")
        own, half, none = (self.ok(*run, *more).json for more in ((), ("--task", "half"), ("--task", "none")))
        self.assertEqual(own, half)  # unless another is asked for
        self.assertNotEqual(own, none)
        r = self.fails(tool.FAILED, "masks", "remove", self.base, "half")  # else s would not run any more
        self.assertIn("got s", r.err)
        self.assertEqual(self.ok(*run).json, half)
        self.ok("skill", "remove", self.base, "s")
        self.ok("masks", "remove", self.base, "half")

    def test_remove(self):
        before = self.ok("eval", self.base, *self.IDS).json
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor)
        self.ok("skill", "add", self.base, "--id", "t", "--from", self.donor, "--tensors", "ffn")
        self.assertEqual(self.ok("skill", "remove", self.base, "s", "--json").json, {"removed": "s"})
        self.assertEqual([s["id"] for s in self.ok("skill", "list", self.base, "--json").json], ["t"])
        self.assertEqual(len(self.tensors()), 1)
        self.ok("skill", "remove", self.base, "t")
        self.assertEqual(self.ok("skill", "list", self.base).out, "no skills\n")
        self.assertEqual(self.ok("eval", self.base, *self.IDS).json, before)
        self.ok("verify", self.base)
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor)  # the id is free again

    def test_quality_is_measured_and_kept(self):
        text = self.path("text")
        with open(text, "w") as f:
            f.write("The quick brown fox jumps over the lazy dog. " * 30)
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor)
        r = self.ok("skill", "quality", self.base, "s", "--text", text, "--json").json
        plain = self.ok("ppl", self.base, text, "--json").json
        skill = self.ok("ppl", self.base, text, "--json", "--skill", "s").json
        self.assertAlmostEqual(r["backbone"] / plain["ppl"], 1, delta=1e-12)
        self.assertAlmostEqual(r["overlaid"] / skill["ppl"], 1, delta=1e-12)
        self.assertEqual(r["tokens"], plain["n_tokens"])
        kept = self.ok("skill", "list", self.base, "--json").json[0]["quality"]
        self.assertEqual(kept, dict(r, file="text",
                                    dataset_sha256=hashlib.sha256(tool.read(text)).hexdigest()))
        self.ok("verify", self.base)

    def test_what_cannot_be_added(self):
        add = ("skill", "add", self.base, "--from")
        self.ok(*add, self.donor, "--id", "s")
        before = tool.read(self.base)
        r = self.fails(FAILED, *add, self.donor, "--id", "s")
        self.assertIn("of this id", r.err)
        self.assertIn("skill remove", r.err)
        self.assertNotIn("--force", r.err)  # that is another thing here
        for bad in ("", "a.b", "a/b", "x" * 65, "\u00e9"):
            self.assertIn("A-Z", self.fails(FAILED, *add, self.donor, "--id", bad).err)
        for word in ("none", "auto"):
            self.assertIn("means something else", self.fails(FAILED, *add, self.donor, "--id", word).err)
        self.assertIn("differs enough", self.fails(FAILED, *add, self.path("hf"), "--id", "t").err)
        self.fails(FAILED, *add, self.path("nowhere"), "--id", "t")
        self.fails(USAGE, *add, self.donor)
        self.fails(USAGE, "skill", "add", self.base, "--id", "t")
        other = os.path.join(tool.FILES, "tiny-moe.cmf")
        self.assertIn("arch.moe: the donor", self.fails(FAILED, *add, other, "--id", "t").err)
        self.assertIn("the file has no skill", self.fails(FAILED, "skill", "remove", self.base, "t").err)
        self.fails(FAILED, "skill", "quality", self.base, "t", "--text", self.donor + "/config.json")
        self.assertEqual(tool.read(self.base), before)


class Cut(Tuned):
    """Skills by themselves (CMF 9.1)."""
    SIDE = json.loads(tool.read(os.path.join(tool.FILES, "tiny-skill-file.json")))

    def setUp(self):
        super().setUp()
        self.specialist, self.skill = self.path("specialist.cmf"), self.path("skill.cmf")
        self.convert(self.donor, self.specialist)

    def cut(self, *more):
        self.ok("skill", "export", self.specialist, "s", "--base", self.base, "-o", self.skill, *more)

    def test_apply_gives_the_specialist_again(self):
        self.cut("--name", "S")
        self.ok("verify", self.skill)
        self.assertIn("needs its base", self.fails(FAILED, "eval", self.skill, "--tokens", "1").err)
        self.assertEqual(sorted(t["name"] for t in self.ok("tensor", self.skill, "--json").json),
                         sorted(self.CHANGED))
        out = self.path("out.cmf")
        self.ok("skill", "apply", self.base, self.skill, "-o", out)
        self.assertEqual(tool.read(out), tool.read(self.specialist))  # byte for byte

    def test_a_skill_of_a_model_travels(self):
        self.ok("skill", "add", self.base, "--id", "t", "--from", self.donor, "--tensors", "ffn")
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor)
        self.ok("skill", "export", self.base, "s", "-o", self.skill)
        out = self.path("out.cmf")
        self.ok("skill", "apply", self.base, self.skill, "-o", out)
        self.assertEqual(self.ok("skill", "list", out, "--json").json, [])  # it is the model now
        keys = ("name", "dtype", "shape", "hash")
        self.assertEqual([[t[k] for k in keys] for t in self.ok("tensor", out, "--json").json],
                         [[t[k] for k in keys] for t in self.ok("tensor", self.specialist, "--json").json])
        self.ok("verify", out)

    def test_another_base_is_refused_unless_forced(self):
        self.cut()
        other, out = self.path("other.cmf"), self.path("out.cmf")
        self.convert(self.path("hf"), other, "q4_block")
        r = self.fails(FAILED, "skill", "apply", other, self.skill, "-o", out)
        self.assertIn("another base", r.err)
        self.assertIn("--force takes this one", r.err)
        self.assertFalse(os.path.exists(out))
        self.ok("skill", "apply", other, self.skill, "-o", out, "--force")
        self.ok("verify", out)
        note = self.ok("info", out, "--json").json["provenance"]["skill_applied_by_force"]
        blob = tool.read(self.base)
        self.assertEqual((note["id"], note["wanted"]),
                         ("s", "%016x" % struct.unpack_from("<Q", blob, 0x78)))
        self.assertNotEqual(note["base_dir_hash"], note["wanted"])

    def test_shards_are_the_base_that_they_make_together(self):
        """The key of a base in shards is that of its one file, by whatever names they go."""
        self.ok("split", self.base, "-o", self.path("b.cmf"), "--shard-max-size", "40K")
        self.ok("split", self.specialist, "-o", self.path("s.cmf"), "--shard-max-size", "30K")
        shards, of_specialist = (sorted(glob.glob(self.path(p))) for p in ("b-*.cmf", "s-*.cmf"))
        self.assertGreater(len(shards), 1)
        self.ok("skill", "export", of_specialist[0], "s", "--base", shards[-1], "-o", self.skill)
        key = self.ok("header", self.skill).json["skills"][0]["base_dir_hash"]
        self.ok("merge", shards[0], "-o", self.path("merged.cmf"))
        self.assertEqual(key, "%016x" % struct.unpack_from("<Q", tool.read(self.path("merged.cmf")), 0x78))
        want = [(t["name"], t["hash"]) for t in self.ok("tensor", self.specialist, "--json").json]
        for i, base in enumerate((shards[1], self.path("merged.cmf"))):
            out = self.path("out%d.cmf" % i)
            self.ok("skill", "apply", base, self.skill, "-o", out)
            self.ok("verify", out)
            self.assertEqual([(t["name"], t["hash"]) for t in self.ok("tensor", out, "--json").json], want)
        os.unlink(shards[1])
        self.assertIn(os.path.basename(shards[1]),
                      self.fails(FAILED, "skill", "apply", shards[0], self.skill, "-o", self.path("x")).err)

    def test_files_of_the_reference(self):
        base = os.path.join(tool.FILES, self.SIDE["base_file"])
        skill = os.path.join(tool.FILES, "tiny-skill-file.cmf")
        out = self.path("out.cmf")
        self.ok("skill", "apply", base, skill, "-o", out)
        own = {t["name"]: t["hash"] for t in self.SIDE["tensors"]}
        side = json.loads(tool.read(base[:-4] + ".json"))
        got = {t["name"]: t["hash"] for t in self.ok("tensor", out, "--json").json}
        self.assertEqual(got, {t["name"]: own.get(t["name"], t["hash"]) for t in side["tensors"]})
        self.assertEqual(self.ok("info", out, "--json").json["masks"]["default_task"], "specialist")
        wrong = os.path.join(tool.FILES, "tiny-skill-file-wrong-base.cmf")
        self.assertIn("0123456789abcdef",
                      self.fails(FAILED, "skill", "apply", base, wrong, "-o", self.path("x")).err)

    def test_a_skill_does_not_take_the_place_of_its_model(self):
        self.ok("skill", "add", self.base, "--id", "s", "--from", self.donor)
        for model, more, target in ((self.base, (), self.base),
                                    (self.specialist, ("--base", self.base), self.base),
                                    (self.specialist, ("--base", self.base), self.specialist)):
            before = tool.read(target)
            self.assertIn("is not replaced", self.fails(FAILED, "skill", "export", model, "s", *more,
                                                        "-o", target, "--overwrite").err)
            self.assertEqual(tool.read(target), before)

    def test_what_cannot_be_cut(self):
        self.assertIn("differs", self.fails(FAILED, "skill", "export", self.specialist, "s", "--base",
                                            self.specialist, "-o", self.skill).err)
        self.assertIn("no skill", self.fails(FAILED, "skill", "export", self.base, "s", "-o",
                                             self.skill).err)
        self.fails(FAILED, "skill", "export", self.specialist, "s", "--base",
                   os.path.join(tool.FILES, "tiny-loop.cmf"), "-o", self.skill)
        self.assertIn("not a skill by itself",
                      self.fails(FAILED, "skill", "apply", self.base, self.specialist, "-o",
                                 self.path("x")).err)
        self.fails(USAGE, "skill", "export", self.specialist, "s")
        self.fails(USAGE, "skill", "apply", self.base, "-o", self.path("x"))
        self.cut()
        self.assertIn("--overwrite", self.fails(FAILED, "skill", "export", self.specialist, "s", "--base",
                                                self.base, "-o", self.skill).err)
        self.cut("--overwrite")


if __name__ == "__main__":
    tool.main()
